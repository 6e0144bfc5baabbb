// LP_POOLING1: output = (the sum of |x|^p)^(1 / p)
fn apply(input: input_s) -> output_s {
    return pow_f32(input, 1.0 / {{ p }}.0);
}
