// The mean of the squares of a row of {{ count }} numbers; their sum keeps the rounding error of every addition.
{% import "reduction/trees" as trees %}
{% include "reduction/exact_sum" %}
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(value * value, 0.0);
}
# for count in counts|default(())
fn lift{{ count }}(values: array<f32, {{ count }}>) -> acc_t {
    return vec2<f32>({{ trees.sum_of("values[#] * values[#]", count) }}, 0.0);
}
# endfor
fn finish(acc: acc_t) -> output_s {
    return select(acc.x + acc.y, acc.x, is_not_finite(acc.x)) / {{ count|f32 }};
}
