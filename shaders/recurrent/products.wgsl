// LSTM: output = a * b + c * d
fn apply(a: a_s, b: b_s, c: c_s, d: d_s) -> output_s {
    return {{ a * b + c * d }};
}
