// CONVOLUTION: output = sum + bias of the channel, where sum is the sum of products of filter and window
fn apply(sum: sum_s, bias: bias_s) -> output_s {
    return {{ (sum + bias.to(compute)).to(output.data_type) }};
}
