// MULTIHEAD_ATTENTION, MULTIHEAD_ATTENTION1: score = query . key * scale, before masks; output = softmax(scores) x values
fn apply(product: product_s) -> output_s {
    return {{ product * scale }};
}
