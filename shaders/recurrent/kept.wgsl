// RNN, LSTM, GRU: output = value within a sequence, other after its end
fn apply(lasts: lasts_s, value: value_s, other: other_s) -> output_s {
    return {{ (lasts > 0).select(value, other) }};
}
