// ELEMENT_WISE_BIT_OR: output = a | b, bit by bit
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.bits_or(b) }};
}
