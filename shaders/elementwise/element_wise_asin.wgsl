// ELEMENT_WISE_ASIN: output = arc sine of input, from -pi/2 to pi/2; NaN outside [-1, 1]
fn apply(input: input_s) -> output_s {
    return asin_f32(input);
}
