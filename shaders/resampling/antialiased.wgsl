// RESAMPLE3, antialiased: what the element of the input that a tap stands for adds to an output element along one axis: its weight
// under a triangle around the coordinate, divided by the sum of all weights on the input
{% include "resampling/coordinate" %}
{% set axis = axes[0] %}
{% set number_t = "f32" if output.lanes == 1 else "vec" ~ output.lanes ~ "<f32>" %}
// The sum of so many weights, whose distances from the middle of the triangle are on average this.
fn added(count: f32, distance: f32) -> f32 {
    return max(count, 0.0) * (1.0 - distance * bitcast<f32>({{ slope_bits }}u));
}
fn all_weights(x: f32) -> f32 {
    let reach = bitcast<f32>({{ reach_bits }}u);
    let first = max(ceil(x - reach), 0.0);
    let middle = clamp(floor(x), -1.0, {{ axis.size - 1 }}.0);
    let last = min(floor(x + reach), {{ axis.size - 1 }}.0);
    return added(middle - first + 1.0, x - 0.5 * (first + middle)) + added(last - middle, 0.5 * (middle + 1.0 + last) - x);
}
fn element(at: output_at) -> output_t {
    // Where nothing lies under the triangle, the edge does.
    let x = clamp(coordinate0(at[{{ axis.dimension }}]), bitcast<f32>({{ lowest_bits }}u), bitcast<f32>({{ highest_bits }}u));
    let here = u32(max(floor(x - bitcast<f32>({{ reach_bits }}u)), 0.0)) + at[{{ output.rank - 1 }}];
    let weight = 1.0 - abs(u32_to_f32(here) - x) * bitcast<f32>({{ slope_bits }}u);
    if (weight <= 0.0 || here >= {{ axis.size }}u) { return output_t(); }
    var source: input_at;
    # for dimension in range(output.rank - 1)
    source[{{ dimension }}] = {{ "here" if dimension == axis.dimension else "at[%d]" % dimension }};
    # endfor
    return weight / all_weights(x) * {{ number_t }}(input_load(source));
}
