// ELEMENT_WISE_LOGICAL_EQUALS: output = 1 where a == b, else 0
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.equals(b).to(output.data_type) }};
}
