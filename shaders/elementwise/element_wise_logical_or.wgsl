// ELEMENT_WISE_LOGICAL_OR: output = 1 where a or b is not 0, else 0
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ (a > 0).either(b > 0).to(output.data_type) }};
}
