// ACTIVATION_SIGMOID: output = 1 / (1 + e^-input)
fn apply(input: input_s) -> output_s {
    return sigmoid_f32(input);
}
