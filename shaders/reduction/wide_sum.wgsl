// Sums of floats that do not overflow before the result does: numbers from 2^64 on, infinities and NaN are summed
// separately, in units of 2^64. Both sums keep their rounding errors.
const LARGE_UNIT = 18446744073709551616.0f;
const OF_LARGE_UNIT = 5.421010862427522e-20f; // its reciprocal
alias acc_t = vec4<f32>; // sum of the smaller numbers, its error; sum of the large ones in units of 2^64, its error
{% set number = "size_of_f32(value)" if absolute|default(false) else "value" %}
fn lift(value: input_s, index: u32) -> acc_t {
    let is_large = (bitcast<u32>(value) & 0x7fffffffu) >= 0x5f800000u;
    return select(vec4<f32>({{ number }}, 0.0, 0.0, 0.0), vec4<f32>(0.0, 0.0, {{ number }} * OF_LARGE_UNIT, 0.0), is_large);
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let small = opaque(a.x + b.x);
    let large = opaque(a.z + b.z);
    let small_error = (a.y + b.y) + sum_error_f32(a.x, b.x, small);
    let large_error = (a.w + b.w) + sum_error_f32(a.z, b.z, large);
    return vec4<f32>(small, small_error, large, large_error);
}
fn has_large(acc: acc_t) -> bool {
    return ((bitcast<u32>(acc.z) | bitcast<u32>(acc.w)) & 0x7fffffffu) != 0u;
}
// Both sums as one, and its error: in units of 2^64 where there are large numbers.
fn whole_sum(acc: acc_t) -> vec2<f32> {
    if (!has_large(acc)) { return acc.xy; }
    let small = acc.x * OF_LARGE_UNIT;
    let sum = opaque(acc.z + small);
    return vec2<f32>(sum, (acc.w + acc.y * OF_LARGE_UNIT) + sum_error_f32(acc.z, small, sum));
}
