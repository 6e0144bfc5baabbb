// ELEMENT_WISE_SQRT: output = sqrt(input)
fn apply(input: input_s) -> output_s {
    return sqrt(input);
}
