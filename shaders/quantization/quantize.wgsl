// QUANTIZE, ELEMENT_WISE_QUANTIZE_LINEAR: output = clamp(round(input / scale) + zero_point, {{ low }}, {{ high }})
fn apply(input: input_s, scale: scale_s, zero_point: zero_point_s) -> output_s {
    return output_s(quantize_f32(divide_f32({{ input.to(compute) }}, scale), i32(zero_point), {{ low }}, {{ high }}));
}
