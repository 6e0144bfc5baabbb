// RESAMPLE3, antialiased: contribution of the input element of a tap to an output element along one axis: its weight
// under a triangle around the coordinate, divided by the sum of all weights. Positions beyond an edge belong to the edge's element.
{% set axis = axes[0] %}
{% include "resampling/triangle" %}
{% set number_t = "f32" if output.lanes == 1 else "vec" ~ output.lanes ~ "<f32>" %}
fn element(at: output_at) -> output_t {
    let given = triangle(at[{{ axis.dimension }}]);
    let here = given.first + at[{{ output.rank - 1 }}];
    let share = share_of(given, here);
    if (share == 0.0) { return output_t(); }
    var source: input_at;
    # for dimension in range(output.rank - 1)
    source[{{ dimension }}] = {{ "here" if dimension == axis.dimension else "at[%d]" % dimension }};
    # endfor
    return share * {{ number_t }}(input_load(source));
}
