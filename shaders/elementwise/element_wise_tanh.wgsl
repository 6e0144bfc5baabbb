// ELEMENT_WISE_TANH, ACTIVATION_TANH: output = hyperbolic tangent of input
fn apply(input: input_s) -> output_s {
    return tanh_f32(input);
}
