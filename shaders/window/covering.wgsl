// FOLD: elements that cover an element, output[lead.., here.., tap..] = input at the position of the tap, and, if the input has
// an element for each, at the element's offset in the window; 0 if there is no such position.
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
    source[{{ here + axes|length }}] =
        (at[{{ here }}] + {{ axis.start }}u - source[{{ here }}] * {{ axis.stride }}u) / {{ axis.dilation }}u;
    # endfor
    return input_load(source);
}
