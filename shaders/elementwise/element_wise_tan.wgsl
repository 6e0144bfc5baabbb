// ELEMENT_WISE_TAN: output = tangent of input in radians, over the whole range of float32
fn apply(input: input_s) -> output_s {
    return tan_f32(input);
}
