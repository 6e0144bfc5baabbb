// GEMM without C: output = alpha * product
fn apply(product: product_s) -> output_s {
    return {{ (product * alpha).to(output.data_type) }};
}
