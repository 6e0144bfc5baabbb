// The logarithm of a row's sum of e^(x - maximum). The largest element contributes exactly 1, and the logarithm is taken of
// 1 + the rest, so that it is as good for a row with one large element (rest near 0) as for any other.
{% import "reduction/trees" as trees %}
{% include "reduction/exact_sum" %}
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(value, 0.0);
}
# for count in counts|default(())
fn lift{{ count }}(values: array<f32, {{ count }}>) -> acc_t {
    return {{ trees.calls_of(resolved("merge"), "vec2<f32>(values[#], 0.0)", count) }};
}
# endfor
fn finish(acc: acc_t) -> output_s {
    return log1p_f32((acc.x - 1.0) + acc.y);
}
