// CONVOLUTION_INTEGER: output = the sum of products of filter and window, less their zero points, in INT32
fn apply(sum: sum_s) -> output_s {
    return sum;
}
