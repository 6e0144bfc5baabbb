// ELEMENT_WISE_RECIP: output = 1 / input
fn apply(input: input_s) -> output_s {
    return {{ 1 / input }};
}
