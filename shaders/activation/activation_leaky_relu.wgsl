// ACTIVATION_LEAKY_RELU: output = input where it is at least 0, else alpha * input
fn apply(input: input_s) -> output_s {
    return {{ (input >= 0).select(input, alpha * input) }};
}
