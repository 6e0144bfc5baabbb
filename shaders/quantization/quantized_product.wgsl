// QUANTIZED_LINEAR_MATRIX_MULTIPLY, QUANTIZED_LINEAR_CONVOLUTION: output = clamp(round(product * (a_scale * b_scale) / scale) +
// zero_point, {{ low }}, {{ high }}), product being the sum of products of both operands, less their zero points, in integers
fn apply(product: product_s, a_scale: a_scale_s, b_scale: b_scale_s, scale: scale_s, zero_point: zero_point_s) -> output_s {
    let real = {{ product.to(compute) }} * (a_scale * b_scale);
    return output_s(quantize_f32(divide_f32(real, scale), zero_point, {{ low }}, {{ high }}));
}
