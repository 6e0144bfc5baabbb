// The mean of the squares of a row of {{ count }} numbers; their sum keeps the rounding error of every addition.
{% include "reduction/exact_sum" %}
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(value * value, 0.0);
}
fn finish(acc: acc_t) -> output_s {
    return select(acc.x + acc.y, acc.x, is_not_finite(acc.x)) / {{ count }}.0;
}
