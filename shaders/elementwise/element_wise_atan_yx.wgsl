// ELEMENT_WISE_ATAN_YX: output = angle of the point with y = a and x = b, from -pi to pi
fn apply(a: a_s, b: b_s) -> output_s {
    return atan2_f32(a, b);
}
