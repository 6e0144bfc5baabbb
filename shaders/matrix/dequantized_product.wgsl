// MATRIX_MULTIPLY_INTEGER_TO_FLOAT without bias: output = product * (a_scale * b_scale), product being the matrix product of
// A and B, less their zero points
fn apply(product: product_s, a_scale: a_scale_s, b_scale: b_scale_s) -> output_s {
    return {{ product.to(compute) }} * (a_scale * b_scale);
}
