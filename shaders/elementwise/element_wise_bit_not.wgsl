// ELEMENT_WISE_BIT_NOT: output = ~input, bit by bit
fn apply(input: input_s) -> output_s {
    return {{ input.bits_inverted() }};
}
