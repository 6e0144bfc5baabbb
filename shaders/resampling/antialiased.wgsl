// RESAMPLE3, antialiased: what the element of the input that a tap stands for adds to an output element along one axis: its weight
// under a triangle around the coordinate, divided by the sum of all weights. Positions beyond an edge belong to the edge's element.
{% include "resampling/coordinate" %}
{% set axis = axes[0] %}
{% set number_t = "f32" if output.lanes == 1 else "vec" ~ output.lanes ~ "<f32>" %}
// The weight, on one side of the coordinate, of the position at a distance and of all that are further away.
fn weight_from(distance: f32) -> f32 {
    let count = max(floor(bitcast<f32>({{ reach_bits }}u) - distance) + 1.0, 0.0);
    return count * (1.0 - (distance + 0.5 * (count - 1.0)) * bitcast<f32>({{ slope_bits }}u));
}
fn element(at: output_at) -> output_t {
    // Further out, the edge has all of the weight.
    let x = clamp(coordinate0(at[{{ axis.dimension }}]), bitcast<f32>({{ lowest_bits }}u), bitcast<f32>({{ highest_bits }}u));
    let first = clamp(floor(x - bitcast<f32>({{ reach_bits }}u)), 0.0, {{ axis.size - 1 }}.0);
    let here = u32(first) + at[{{ output.rank - 1 }}];
    let share = x - floor(x);
    let all_weights = weight_from(share) + weight_from(1.0 - share);
    # if axis.size == 1
    let weight = all_weights;
    # else
    var weight = 1.0 - abs(u32_to_f32(here) - x) * bitcast<f32>({{ slope_bits }}u);
    if (here == 0u || here == {{ axis.size - 1 }}u) {
        let inwards = select({{ axis.size - 1 }}.0 - x, x, here == 0u); // the coordinate's distance from the edge, on the input
        weight = select(all_weights - weight_from(1.0 - inwards), weight_from(inwards), inwards >= 0.0);
    }
    # endif
    if (weight <= 0.0 || here >= {{ axis.size }}u) { return output_t(); }
    var source: input_at;
    # for dimension in range(output.rank - 1)
    source[{{ dimension }}] = {{ "here" if dimension == axis.dimension else "at[%d]" % dimension }};
    # endfor
    return weight / all_weights * {{ number_t }}(input_load(source));
}
