// ELEMENT_WISE_MEAN: output = (a + b) / 2
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.call("mean", b) }};
}
