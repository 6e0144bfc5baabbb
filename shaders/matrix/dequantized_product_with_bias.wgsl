// MATRIX_MULTIPLY_INTEGER_TO_FLOAT: output = product * (a_scale * b_scale) + bias, product being the matrix product of A and
// B, less their zero points
fn apply(product: product_s, a_scale: a_scale_s, b_scale: b_scale_s, bias: bias_s) -> output_s {
    return {{ product.to(compute) }} * (a_scale * b_scale) + bias;
}
