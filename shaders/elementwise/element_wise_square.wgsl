// ELEMENT_WISE_CONSTANT_POW with the exponent 2: output = input * input
fn apply(input: input_s) -> output_s {
    return {{ input * input }};
}
