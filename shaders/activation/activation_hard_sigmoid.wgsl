// ACTIVATION_HARD_SIGMOID: output = max(0, min(alpha * input + beta, 1)); NaN stays NaN
fn apply(input: input_s) -> output_s {
    return {{ (alpha * input + beta).minimum(1).maximum(0) }};
}
