// ELEMENT_WISE_ADD, ELEMENT_WISE_ADD1: output = a + b
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a + b }};
}
