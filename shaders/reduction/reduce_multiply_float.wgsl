// REDUCE MULTIPLY of floats: product(x). Significands, in twice the precision, and exponents are multiplied separately, so that
// nothing overflows or underflows before the result does.
alias acc_t = vec4<u32>; // significand from 1 to 2, with sign (or zero, infinity, NaN); its error; exponent; unused
fn lift(value: input_s, index: u32) -> acc_t {
    let size = bitcast<u32>(value) & 0x7fffffffu;
    if (size == 0u || size >= 0x7f800000u) { return vec4<u32>(bitcast<u32>(value), 0u, 0u, 0u); }
    let normal_bits = bitcast<u32>(magnified_bits(size));
    let significand = (normal_bits & 0x7fffffu) | 0x3f800000u;
    let exponent = (bitcast<i32>(normal_bits) >> 23u) - 127;
    return vec4<u32>(significand | (bitcast<u32>(value) & 0x80000000u), 0u, bitcast<u32>(exponent), 0u);
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let x = bitcast<f32>(a.x);
    let y = bitcast<f32>(b.x);
    let product = opaque(x * y);
    let size = bitcast<u32>(product) & 0x7fffffffu;
    if (size == 0u || size >= 0x7f800000u) { return vec4<u32>(bitcast<u32>(product), 0u, 0u, 0u); }
    let x_high = leading_f32(x);
    let y_high = leading_f32(y);
    let x_low = x - x_high;
    let y_low = y - y_high;
    let lost = ((x_high * y_high - product) + (x_high * y_low + x_low * y_high)) + x_low * y_low;
    let rest = lost + (x * bitcast<f32>(b.y) + bitcast<f32>(a.y) * y);
    let sum = opaque(product + rest);
    let left = rest - opaque(sum - product);
    let places = i32((bitcast<u32>(sum) >> 23u) & 255u) - 127; // from -1 to 2
    let exponent = clamp(bitcast<i32>(a.z) + bitcast<i32>(b.z) + places, -0x20000000, 0x20000000);
    let back = bitcast<f32>(u32(127 - places) << 23u);
    return vec4<u32>(bitcast<u32>(sum * back), bitcast<u32>(left * back), bitcast<u32>(exponent), 0u);
}
fn finish(acc: acc_t) -> f32 {
    let significand = bitcast<f32>(acc.x);
    if ((acc.x & 0x7fffffffu) == 0u || is_not_finite(significand)) { return significand; }
    let size = size_of_f32(significand + bitcast<f32>(acc.y));
    return with_sign_f32(scale_f32(size, clamp(bitcast<i32>(acc.z), -600, 600)), significand);
}
