// ELEMENT_WISE_SQRT: output = sqrt(input)
fn apply(input: input_s) -> output_s {
    return sqrt_f32(input);
}
