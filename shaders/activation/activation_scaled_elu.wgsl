// ACTIVATION_SCALED_ELU: output = gamma * input where it is above 0, else gamma * alpha * (e^input - 1)
fn apply(input: input_s) -> output_s {
    return {{ gamma * (input > 0).select(input, alpha * input.call("expm1")) }};
}
