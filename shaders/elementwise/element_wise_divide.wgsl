// ELEMENT_WISE_DIVIDE: output = a / b; integers are cut towards zero, division by zero gives all ones
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a / b }};
}
