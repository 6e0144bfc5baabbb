// QUANTIZED_LINEAR_AVERAGE_POOLING: output = clamp(round(divide_f32(average * input_scale, scale)) + zero_point, {{ low }}, {{ high }}), average
// being that of the integers less their zero point
fn apply(average: average_s, input_scale: input_scale_s, scale: scale_s, zero_point: zero_point_s) -> output_s {
    return output_s(quantize_f32(divide_f32(average * input_scale, scale), i32(zero_point), {{ low }}, {{ high }}));
}
