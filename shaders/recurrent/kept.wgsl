// RNN, LSTM, GRU: output = value while a sequence lasts, after that other
fn apply(lasts: lasts_s, value: value_s, other: other_s) -> output_s {
    return {{ (lasts > 0).select(value, other) }};
}
