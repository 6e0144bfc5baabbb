// ACTIVATION_PARAMETERIZED_RELU: output = input where it is at least 0, else slope * input
fn apply(input: input_s, slope: slope_s) -> output_s {
    return {{ (input >= 0).select(input, slope * input) }};
}
