// ELEMENT_WISE_ABS: output = |input|; the smallest integer stays what it is
fn apply(input: input_s) -> output_s {
    return {{ input.absolute() }};
}
