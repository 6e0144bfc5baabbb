// ELEMENT_WISE_MIN: output = min(a, b)
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.minimum(b) }};
}
