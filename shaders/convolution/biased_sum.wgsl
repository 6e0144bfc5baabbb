// QUANTIZED_LINEAR_CONVOLUTION: a sum of products of integers and the bias of its channel, in INT32, which wraps around
fn apply(sum: sum_s, bias: bias_s) -> output_s {
    return sum + bias;
}
