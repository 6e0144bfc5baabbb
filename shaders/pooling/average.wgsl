// AVERAGE_POOLING1: output = the sum of what the window sees / how many elements that are
{% include "pooling/divisor" %}
fn element(at: output_at) -> output_t {
    return f32(sums_load(at)) / divisor(at);
}
