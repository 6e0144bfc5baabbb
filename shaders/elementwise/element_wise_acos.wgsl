// ELEMENT_WISE_ACOS: output = arc cosine of input, from 0 to pi; NaN outside [-1, 1]
fn apply(input: input_s) -> output_s {
    return acos_f32(input);
}
