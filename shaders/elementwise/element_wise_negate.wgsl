// ELEMENT_WISE_NEGATE: output = -input
fn apply(input: input_s) -> output_s {
    return {{ -input }};
}
