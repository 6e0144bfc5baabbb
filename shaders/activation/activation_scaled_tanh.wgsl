// ACTIVATION_SCALED_TANH: output = alpha * tanh(beta * input)
fn apply(input: input_s) -> output_s {
    return {{ alpha * (beta * input).call("tanh") }};
}
