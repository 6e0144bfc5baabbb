// ELEMENT_WISE_ASINH: output = inverse hyperbolic sine of input
fn apply(input: input_s) -> output_s {
    return asinh_f32(input);
}
