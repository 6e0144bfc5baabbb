// ACTIVATION_HARD_SWISH: output = input * max(0, min(alpha * input + beta, 1))
fn apply(input: input_s) -> output_s {
    return {{ input * (alpha * input + beta).minimum(1).maximum(0) }};
}
