// ELEMENT_WISE_BIT_SHIFT_RIGHT: output = a >> b, zeros come in; the count is modulo 32 (64-bit elements: 64)
fn apply(a: a_s, b: b_s) -> output_s {
    return {{ a.call("shift_right", b) }};
}
