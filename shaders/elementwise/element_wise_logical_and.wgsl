// ELEMENT_WISE_LOGICAL_AND: output = 1 where a and b are not 0, else 0
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ (a > 0).both(b > 0).to(output.data_type) }};
}
