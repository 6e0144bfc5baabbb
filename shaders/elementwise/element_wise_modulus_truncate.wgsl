// ELEMENT_WISE_MODULUS_TRUNCATE: output = a - b * trunc(a / b), with the sign of a
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.remainder(b) }};
}
