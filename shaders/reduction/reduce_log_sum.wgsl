// REDUCE LOG_SUM: log(sum(x)), also of sums beyond float32; NaN for negative sums
{% include "reduction/wide_sum" %}
// The logarithm of a sum with its error.
fn log_of_sum(sum: vec2<f32>) -> f32 {
    let rounded = opaque(sum.x + sum.y);
    if (bitcast<u32>(rounded) - 1u >= 0x7f7fffffu) { // zero, negative, not finite
        return log_f32(select(rounded, sum.x, is_not_finite(sum.x)));
    }
    let lost = sum.y - opaque(rounded - sum.x);
    return log_of_bits(magnified_bits(bitcast<u32>(rounded)), lost / rounded);
}
fn finish(acc: acc_t) -> output_s {
    let logarithm = log_of_sum(whole_sum(acc));
    return select(logarithm, logarithm + 44.36142f, has_large(acc)); // 64 ln 2
}
