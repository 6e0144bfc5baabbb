// ELEMENT_WISE_QUANTIZED_LINEAR_ADD: sum = (a - a_zero_point) * a_scale + (b - b_zero_point) * b_scale,
// output = clamp(round(sum / output_scale) + output_zero_point, {{ low }}, {{ high }})
fn apply(
    a: a_s, b: b_s, a_scale: a_scale_s, a_zero_point: a_zero_point_s, b_scale: b_scale_s, b_zero_point: b_zero_point_s,
    output_scale: output_scale_s, output_zero_point: output_zero_point_s,
) -> output_s {
    let a_value = opaque(f32(i32(a) - i32(a_zero_point)) * a_scale);
    let b_value = opaque(f32(i32(b) - i32(b_zero_point)) * b_scale);
    return output_s(quantize_f32(divide_f32(a_value + b_value, output_scale), i32(output_zero_point), {{ low }}, {{ high }}));
}
