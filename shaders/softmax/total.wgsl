// A row's sum of e^(x - maximum), with the rounding error of every addition kept beside it.
{% import "reduction/trees" as trees %}
{% include "reduction/exact_sum" %}
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(value, 0.0);
}
# for count in counts|default(())
fn lift{{ count }}(values: array<f32, {{ count }}>) -> acc_t {
    return vec2<f32>({{ trees.sum_of("values[#]", count) }}, 0.0);
}
# endfor
fn finish(acc: acc_t) -> output_s {
    return acc.x + acc.y;
}
