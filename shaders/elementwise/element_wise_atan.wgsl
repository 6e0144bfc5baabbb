// ELEMENT_WISE_ATAN: output = arc tangent of input, from -pi/2 to pi/2
fn apply(input: input_s) -> output_s {
    return atan_f32(input);
}
