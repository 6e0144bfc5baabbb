// LP_NORMALIZATION: output = input / max(norm, epsilon)
fn apply(input: input_s, norm: norm_s) -> output_s {
    return input / {{ norm.maximum(epsilon) }};
}
