// A row's sum of e^(x - maximum), with the rounding error of every addition kept beside it.
{% include "reduction/exact_sum" %}
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(value, 0.0);
}
fn finish(acc: acc_t) -> output_s {
    return acc.x + acc.y;
}
