// ELEMENT_WISE_COSH: output = hyperbolic cosine of input
fn apply(input: input_s) -> output_s {
    return cosh_f32(input);
}
