// MAX_POOLING_GRAD: contribution to an element of the input from a position whose window covers it: the gradient, if
// it is the window's maximum
{% include "window/find_position" %}
{% include "pooling/chosen_at" %}
fn element(at: output_at) -> output_t {
    var position: gradient_at;
    if (!find_position(at, &position)) { return output_t(); }
    let source = chosen_at(position, places_index(position, {{ count }}u));
    # for axis in axes
    # set here = lead + loop.index0
    if (source[{{ here }}] != at[{{ here }}]) { return output_t(); }
    # endfor
    return gradient_load(position);
}
