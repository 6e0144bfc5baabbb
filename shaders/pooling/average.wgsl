// AVERAGE_POOLING1: output = the sum of the window's elements / their number
{% include "pooling/divisor" %}
fn element(at: output_at) -> output_t {
    return f32(sums_load(at)) / divisor(at);
}
