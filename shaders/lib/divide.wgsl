// Division that is rounded correctly on every adapter; WGSL allows 2.5 ULP, and some drivers multiply by reciprocals.

// numerator / denominator, for a denominator that is positive and normal and a numerator that is normal or 0. Results beyond
// range become the largest number, results too small to be normal become 0.
fn divide_f32(numerator: f32, denominator: f32) -> f32 {
    let over = bitcast<u32>(numerator);
    let under = bitcast<u32>(denominator);
    let dividend = (over & 0x7fffffu) | 0x800000u;
    let divisor = (under & 0x7fffffu) | 0x800000u;
    let less = select(0u, 1u, dividend < divisor);
    // An estimate of the significand, and by how much it misses: the true rest is small, so that arithmetic modulo 2^32 finds it.
    let ratio = bitcast<f32>(dividend + 0x3f000000u) / bitcast<f32>(divisor + 0x3f000000u);
    let estimate = u32(ratio * select(8388608.0, 16777216.0, less == 1u));
    let rest = (dividend << (23u + less)) - estimate * divisor;
    let missed = (rest + 8u * divisor) / divisor; // 8 too many
    let significand = estimate + missed - 8u;
    let left = rest + 8u * divisor - missed * divisor;
    let nearest = significand + select(0u, 1u, 2u * left > divisor); // a quotient never lies halfway between two numbers
    let exponent = i32((over >> 23u) & 0xffu) - i32(under >> 23u) + 127 - i32(less);
    var size = (u32(exponent) << 23u) + (nearest - 0x800000u);
    size = select(size, 0x7f7fffffu, exponent > 254 || (size >= 0x7f800000u && exponent > 0));
    size = select(size, 0u, exponent < 1 || (over & 0x7f800000u) == 0u);
    return bitcast<f32>(size | (over & 0x80000000u));
}
