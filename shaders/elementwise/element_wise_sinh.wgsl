// ELEMENT_WISE_SINH: output = hyperbolic sine of input
fn apply(input: input_s) -> output_s {
    return sinh_f32(input);
}
