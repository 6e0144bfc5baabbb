// ELEMENT_WISE_CEIL: output = ceil(input)
fn apply(input: input_s) -> output_s {
    return {{ input.call("ceil") }};
}
