// ACTIVATION_PARAMETRIC_SOFTPLUS: output = alpha * log(1 + e^(beta * input))
fn apply(input: input_s) -> output_s {
    return {{ alpha * (beta * input).call("softplus") }};
}
