// ELEMENT_WISE_LOGICAL_GREATER_THAN: output = 1 where a > b, else 0
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ (a > b).to(output.data_type) }};
}
