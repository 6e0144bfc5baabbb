// ELEMENT_WISE_COS: output = cosine of input in radians, over the whole range of float32
fn apply(input: input_s) -> output_s {
    return cos_f32(input);
}
