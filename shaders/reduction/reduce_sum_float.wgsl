// REDUCE SUM of floats: sum(x)
{% include "reduction/exact_sum" %}
{% import "reduction/trees" as tree %}
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(value, 0.0);
}
# if at_once|default(0)
fn absorb(sum: run_t, values: array<input_s, {{ at_once }}>) -> run_t {
    return sum + {{ tree.sum_of("f64(values[#])", at_once) }};
}
# endif
fn finish(acc: acc_t) -> output_s {
    return select(acc.x + acc.y, acc.x, is_not_finite(acc.x));
}
