// REDUCE AVERAGE: sum(x) / n, finite wherever the average is
{% include "reduction/wide_sum" %}
fn finish(acc: acc_t) -> output_s {
    let sum = whole_sum(acc);
    if (is_not_finite(sum.x)) { return sum.x; }
    let average = (sum.x + sum.y) / f32({{ terms }}u);
    return select(average, average * LARGE_UNIT, has_large(acc));
}
