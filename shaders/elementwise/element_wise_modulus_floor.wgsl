// ELEMENT_WISE_MODULUS_FLOOR: output = a - b * floor(a / b), with the sign of b
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.floor_remainder(b) }};
}
