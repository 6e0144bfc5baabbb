// ELEMENT_WISE_BIT_SHIFT_LEFT: output = a << b; the count is modulo 32 (64-bit elements: 64)
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.call("shift_left", b) }};
}
