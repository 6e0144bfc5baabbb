// An approximate maximum of a row, and the sum of e^(x - maximum), in one pass. The sum is scaled where the maximum grows: each time
// that costs a rounding error. So it grows only in steps of more than 1, each of which makes the errors before it e times smaller,
// and may in the end lie below the largest number by up to 1, which costs the differences from it nothing. Weights of a
// group of numbers are added as a tree, by few additions each; the rounding errors of adding their sums are kept.
{% import "reduction/trees" as sums %}
{% include "reduction/exact_sum" %}
alias run_t = vec3<f32>; // maximum, sum, its error
fn open() -> run_t {
    return vec3<f32>(bitcast<f32>(0xff7fffffu), 0.0, 0.0); // the lowest number, of which differences are no NaN
}
# for count in counts
fn absorb{{ count }}(run: run_t, numbers: array<f32, {{ count }}>) -> run_t {
    let largest = {{ sums.calls_of("max", "numbers[#]", count) }};
    let maximum = select(run.x, largest, largest > run.x + 1.0);
    # for number in range(count)
    let weight{{ number }} = exp_bounded(numbers[{{ number }}] - maximum);
    # endfor
    let weights = {{ sums.sum_of("weight#", count) }};
    return vec3<f32>(maximum, merge(run.yz * exp_bounded(run.x - maximum), vec2<f32>(weights, 0.0)));
}
# endfor
// Opaque, so that no compiler makes 0 of infinity - infinity in a row of one element.
fn finish(run: run_t) -> vec2<f32> {
    return vec2<f32>(opaque(run.x), run.y + run.z);
}
