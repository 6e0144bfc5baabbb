// CONVOLUTION: output = sum + bias of the channel, sum being that of the products of the filter and what its windows see
fn apply(sum: sum_s, bias: bias_s) -> output_s {
    return {{ (sum + bias.to(compute)).to(output.data_type) }};
}
