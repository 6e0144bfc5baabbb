// The largest element of a row. NaN may be lost here: it makes the sum of exponentials NaN. Opaque,
// so that no compiler makes 0 of infinity - infinity in a row of one element.
{% import "reduction/trees" as trees %}
alias acc_t = input_s;
fn lift(value: input_s, index: u32) -> acc_t {
    return value;
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    return max(a, b);
}
# for count in counts|default(())
fn lift{{ count }}(values: array<f32, {{ count }}>) -> acc_t {
    return {{ trees.calls_of("max", "values[#]", count) }};
}
# endfor
fn finish(acc: acc_t) -> output_s {
    return opaque(acc);
}
