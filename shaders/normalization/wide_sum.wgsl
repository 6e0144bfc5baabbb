// The sum of absolute values, however small; a negative number is one in units of 2^64.
{% include "reduction/wide_sum" %}
fn finish(acc: acc_t) -> output_s {
    let sum = whole_sum(acc);
    let total = select(sum.x + sum.y, sum.x, is_not_finite(sum.x));
    return select(total, negate_f32(total), has_large(acc));
}
