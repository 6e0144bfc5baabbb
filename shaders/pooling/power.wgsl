// LP_POOLING1: |x|^p, of which the sum is taken
fn apply(input: input_s) -> output_s {
    return pow_f32(size_of_f32(input), {{ p }}.0);
}
