// What covers an element: output[lead.., here.., place..] = input[lead.., (here + start - place * dilation) / stride ..], 0
// where this is no position of the window.
{% include "window/position" %}
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(lead)
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for axis in axes
    # set here = lead + loop.index0
    source[{{ here }}] = position{{ loop.index0 }}(at[{{ here }}], at[{{ here + axes|length }}]);
    if (source[{{ here }}] >= {{ axis.positions }}u) { return output_t(); }
    # if placed
    source[{{ here + axes|length }}] = at[{{ here + axes|length }}];
    # endif
    # endfor
    return input_load(source);
}
