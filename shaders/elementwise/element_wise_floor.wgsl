// ELEMENT_WISE_FLOOR: output = floor(input)
fn apply(input: input_s) -> output_s {
    return {{ input.call("floor") }};
}
