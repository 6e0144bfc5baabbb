// RESAMPLE_GRAD1: contribution of a tap's output element of the forward operator to the gradient of an element of its
// input along one axis: the output's gradient times the weight that the forward operator gave that element
{% include "resampling/nearest_element" if nearest else "resampling/coordinate" %}
{% set axis = axes[0] %}
fn element(at: output_at) -> output_t {
    let here = at[{{ axis.dimension }}];
    let first = max(i32(here) * {{ line.step }} + {{ line.start }}, 0) / {{ line.divisor }};
    let user = u32(first) + at[{{ output.rank - 1 }}];
    if (user >= {{ axis.count }}u) { return output_t(); }
    # if nearest
    if (nearest0(user) != here) { return output_t(); }
    # else
    let weight = 1.0 - abs(clamp(coordinate0(user), 0.0, {{ (axis.size - 1)|f32 }}) - u32_to_f32(here));
    if (weight <= 0.0) { return output_t(); }
    # endif
    var source: input_at;
    # for dimension in range(output.rank - 1)
    source[{{ dimension }}] = {{ "user" if dimension == axis.dimension else "at[%d]" % dimension }};
    # endfor
    return {{ "" if nearest else "weight * " }}input_load(source);
}
