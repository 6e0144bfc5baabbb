// The position of the taps of an element; false if there is none.
{% include "window/position" %}
fn find_position(at: output_at, found: ptr<function, gradient_at>) -> bool {
    # for dimension in range(lead)
    (*found)[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for axis in axes
    # set here = lead + loop.index0
    (*found)[{{ here }}] = position{{ loop.index0 }}(at[{{ here }}], at[{{ here + axes|length }}]);
    if ((*found)[{{ here }}] >= {{ axis.positions }}u) { return false; }
    # endfor
    return true;
}
