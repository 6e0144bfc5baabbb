// ELEMENT_WISE_SIN: output = sine of input in radians, over the whole range of float32
fn apply(input: input_s) -> output_s {
    return sin_f32(input);
}
