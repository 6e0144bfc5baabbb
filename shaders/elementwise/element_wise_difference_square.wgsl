// ELEMENT_WISE_DIFFERENCE_SQUARE: output = (a - b) * (a - b)
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ (a - b) * (a - b) }};
}
