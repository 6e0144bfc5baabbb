// ELEMENT_WISE_BIT_COUNT: output = how many bits of input are 1
fn apply(input: input_s) -> output_s {
    return {{ input.bit_count().to(output.data_type) }};
}
