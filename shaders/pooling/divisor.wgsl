// The number of elements of the window, or of those that lie on the input.
# if counted
{% include "window/inside" %}
# endif
fn divisor(at: {{ resolved(divided ~ "_at") }}) -> f32 {
    # if counted
    var count = 1u;
    # for axis in axes
    # set here = lead + loop.index0
    count *= last_inside{{ loop.index0 }}(at[{{ here }}]) + 1u - first_inside{{ loop.index0 }}(at[{{ here }}]);
    # endfor
    return f32(count);
    # else
    return {{ count|f32 }};
    # endif
}
