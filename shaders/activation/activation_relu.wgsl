// ACTIVATION_RELU: output = max(0, input); NaN stays NaN, -0 becomes 0
fn apply(input: input_s) -> output_s {
    return {{ input.maximum(0) }};
}
