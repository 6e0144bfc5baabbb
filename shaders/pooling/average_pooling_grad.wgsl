// AVERAGE_POOLING_GRAD: what reaches an element of the input from a position whose window covers it
{% include "window/position" %}
{% include "pooling/divisor" %}
fn element(at: output_at) -> output_t {
    var position: gradient_at;
    # for dimension in range(lead)
    position[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for axis in axes
    # set here = lead + loop.index0
    position[{{ here }}] = position{{ loop.index0 }}(at[{{ here }}], at[{{ here + axes|length }}]);
    if (position[{{ here }}] >= {{ axis.positions }}u) { return output_t(); }
    # endfor
    return gradient_load(position) / divisor(position);
}
