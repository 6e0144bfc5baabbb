// The sum of gradient * (input - given mean), from that about the input's own mean, which has two parts
fn apply(products: products_s, total: total_s, mean: mean_s, lack: lack_s, given: given_s) -> output_s {
    return products + total * ((mean - given) + lack);
}
