// CUMULATIVE_SUMMATION of floats: as cumulative_summation.wgsl, in float32 with the rounding error of every addition kept
// beside the sum, so that the length of a line costs no precision
{% include "reduction/reduce_sum_float" %}
fn start() -> acc_t {
    return vec2<f32>(0.0, 0.0);
}
