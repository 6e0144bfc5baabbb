// ACTIVATION_GELU: output = input * (1 + erf(input / sqrt(2))) / 2
fn apply(input: input_s) -> output_s {
    return gelu_f32(input);
}
