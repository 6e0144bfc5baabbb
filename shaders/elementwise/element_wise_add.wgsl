// ELEMENT_WISE_ADD: output = a + b
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a + b }};
}
