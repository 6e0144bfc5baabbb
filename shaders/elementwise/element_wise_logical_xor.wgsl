// ELEMENT_WISE_LOGICAL_XOR: output = 1 where one of a and b is not 0 and the other is, else 0
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ (a > 0).equals(b > 0).negated().to(output.data_type) }};
}
