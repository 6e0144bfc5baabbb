// ELEMENT_WISE_LOGICAL_NOT: output = 1 where input is 0, else 0
fn apply(input: input_s) -> output_s {
    return {{ input.equals(0).to(output.data_type) }};
}
