// CUMULATIVE_PRODUCT of floats: as cumulative_product.wgsl. A product is (significand + its error) * 2^exponent with a
// significand from 1 to 2, so that products that leave the range of float32 on the way come back exactly.
alias acc_t = vec4<f32>; // significand, its rounding error, exponent, unused
const FARTHEST = 16777216.0; // exponents are exact up to here
fn start() -> acc_t {
    return vec4<f32>(1.0, 0.0, 0.0, 0.0);
}
fn lift(value: input_s, index: u32) -> acc_t {
    let size = bitcast<u32>(value) & 0x7fffffffu;
    let is_subnormal = size < 0x00800000u;
    let bits = select(size, bitcast<u32>(f32(size)), is_subnormal); // times 2^149
    let exponent = i32(bits >> 23u) - select(127, 276, is_subnormal);
    let significand = bitcast<f32>((bitcast<u32>(value) & 0x80000000u) | 0x3f800000u | (bits & 0x7fffffu));
    let is_number = size != 0u && size < 0x7f800000u;
    return vec4<f32>(select(value, significand, is_number), 0.0, select(0.0, f32(exponent), is_number), 0.0);
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let product = opaque(a.x * b.x);
    let a_leading = leading_f32(a.x);
    let b_leading = leading_f32(b.x);
    let a_rest = a.x - a_leading;
    let b_rest = b.x - b_leading;
    let error = (((a_leading * b_leading - product) + a_leading * b_rest) + a_rest * b_leading) + a_rest * b_rest;
    let all_errors = error + (a.x * b.y + a.y * b.x);
    let is_large = abs(product) >= 2.0;
    let scale = select(1.0, 0.5, is_large);
    let exponent = clamp(a.z + b.z + select(0.0, 1.0, is_large), -FARTHEST, FARTHEST);
    return vec4<f32>(product * scale, all_errors * scale, exponent, 0.0);
}
fn finish(acc: acc_t) -> output_s {
    let sum = acc.x + acc.y;
    let scaled = with_sign_f32(scale_f32(size_of_f32(sum), i32(clamp(acc.z, -600.0, 600.0))), acc.x);
    return select(scaled, acc.x, is_not_finite(acc.x) || size_of_f32(acc.x) == 0.0);
}
