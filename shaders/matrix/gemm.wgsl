// GEMM: output = alpha * product + beta * c, product being the matrix product of A and B
fn apply(product: product_s, c: c_s) -> output_s {
    return {{ (product * alpha + c.to(compute) * beta).to(output.data_type) }};
}
