// Divisor of the elements of a window: the largest of their magnitudes; 1 if that is 0, subnormal or not finite.
fn scale(largest: f32) -> f32 {
    let exponent = bitcast<u32>(largest) & 0x7f800000u;
    return select(largest, 1.0, exponent == 0u || exponent == 0x7f800000u);
}
