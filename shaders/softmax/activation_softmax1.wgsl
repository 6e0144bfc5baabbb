// ACTIVATION_SOFTMAX1: output = e^(input - maximum) / total, the total being the sum of e^(x - maximum) over the row
fn apply(input: input_s, maximum: maximum_s, total: total_s) -> output_s {
    return exp_bounded(input - maximum) / total;
}
