// The weight of a score from its distance to the largest one: at most 0, or NaN.
fn weight_of(x: f32) -> f32 {
    let size = bitcast<u32>(x) & 0x7fffffffu;
    return select(select(exp_normal(max(x, -87.0)), 0.0, size > 0x42ae0000u), x, size > 0x7f800000u);
}
