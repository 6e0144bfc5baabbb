// ACTIVATION_LOG_SOFTMAX1: output = input - maximum - log_total, the logarithm of the sum of e^(x - maximum) over the row
fn apply(input: input_s, maximum: maximum_s, log_total: log_total_s) -> output_s {
    return (input - maximum) - log_total;
}
