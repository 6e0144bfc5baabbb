// ACTIVATION_SOFTSIGN: output = input / (1 + |input|)
fn apply(input: input_s) -> output_s {
    return divide_f32(input, 1.0 + abs(input));
}
