// AVERAGE_POOLING_GRAD: contribution to an element of the input from a position whose window covers it
{% include "window/find_position" %}
{% include "pooling/divisor" %}
fn element(at: output_at) -> output_t {
    var position: gradient_at;
    if (!find_position(at, &position)) { return output_t(); }
    return gradient_load(position) / divisor(position);
}
