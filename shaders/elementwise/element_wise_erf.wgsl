// ELEMENT_WISE_ERF: output = error function of input
fn apply(input: input_s) -> output_s {
    return erf_f32(input);
}
