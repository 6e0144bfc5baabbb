// Queries, keys or values with their part of the bias; scores with the bias of relative positions.
fn apply(input: input_s, bias: bias_s) -> output_s {
    return input + bias;
}
