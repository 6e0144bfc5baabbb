// ELEMENT_WISE_MAX: output = max(a, b)
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.maximum(b) }};
}
