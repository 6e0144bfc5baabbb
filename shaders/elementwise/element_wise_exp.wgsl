// ELEMENT_WISE_EXP: output = e^input
fn apply(input: input_s) -> output_s {
    return exp_f32(input);
}
