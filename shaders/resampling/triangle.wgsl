// The triangle of antialiasing around a coordinate: values that are computed once for all elements under it.
{% include "resampling/coordinate" %}
{% set axis = axes[0] %}
{% set edge = axis.size - 1 %}
struct Triangle {
    x: f32, // the coordinate; further out, the edge has all of the weight
    first: u32, // the first element of the input under the triangle
    all_weights: f32,
    of_low_edge: f32, // of the first element of the input, with all positions beyond it
    of_high_edge: f32,
}
// The weight, on one side of the coordinate, of the position at a distance and of all that are further away.
fn weight_from(distance: f32) -> f32 {
    let count = max(floor(bitcast<f32>({{ reach_bits }}u) - distance) + 1.0, 0.0);
    return count * (1.0 - (distance + 0.5 * (count - 1.0)) * bitcast<f32>({{ slope_bits }}u));
}
// The weight of an edge and of all positions beyond it; the coordinate lies so far inside of it.
fn weight_of_edge(inwards: f32, all_weights: f32) -> f32 {
    return select(all_weights - weight_from(1.0 - inwards), weight_from(inwards), inwards >= 0.0);
}
fn triangle(number: u32) -> Triangle {
    let x = clamp(coordinate0(number), bitcast<f32>({{ lowest_bits }}u), bitcast<f32>({{ highest_bits }}u));
    let first = u32(clamp(ceil(x - bitcast<f32>({{ reach_bits }}u)), 0.0, {{ edge|f32 }}));
    let share = x - floor(x);
    let all_weights = weight_from(share) + weight_from(1.0 - share);
    # if axis.size == 1
    return Triangle(x, first, all_weights, all_weights, all_weights);
    # else
    return Triangle(x, first, all_weights, weight_of_edge(x, all_weights), weight_of_edge({{ edge|f32 }} - x, all_weights));
    # endif
}
// The share of an element in the output.
fn share_of(given: Triangle, here: u32) -> f32 {
    let inner = 1.0 - abs({{ "f32" if axis.size < 2 ** 23 else "u32_to_f32" }}(here) - given.x) * bitcast<f32>({{ slope_bits }}u);
    let weight = select(select(inner, given.of_high_edge, here == {{ edge }}u), given.of_low_edge, here == 0u);
    return select(0.0, weight / given.all_weights, (weight > 0.0) & (here < {{ axis.size }}u));
}
