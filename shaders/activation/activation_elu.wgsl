// ACTIVATION_ELU: output = input where it is at least 0, else alpha * (e^input - 1)
fn apply(input: input_s) -> output_s {
    return {{ (input >= 0).select(input, alpha * input.call("expm1")) }};
}
