// LSTM, GRU: output = (1 - share) * a + share * b
fn apply(share: share_s, a: a_s, b: b_s) -> output_s {
    return {{ (1.0 - share) * a + share * b }};
}
