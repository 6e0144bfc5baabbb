// The sum of absolute values, however small or large.
# if exponent
// In units of 2^{{ exponent }}. Each value is scaled behind opaque(): drivers would scale their sums.
{% include "reduction/exact_sum" %}
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(opaque(size_of_f32(value) * {{ 2.0 ** -exponent }}), 0.0);
}
fn finish(acc: acc_t) -> output_s {
    return select(acc.x + acc.y, acc.x, is_not_finite(acc.x));
}
# else
// A negative number stands for one in units of 2^64.
{% include "reduction/wide_sum" %}
fn finish(acc: acc_t) -> output_s {
    let sum = whole_sum(acc);
    let total = select(sum.x + sum.y, sum.x, is_not_finite(sum.x));
    return select(total, negate_f32(total), has_large(acc));
}
# endif
