// BATCH_NORMALIZATION_TRAINING_GRAD: output = scale / sqrt(variance + epsilon)
// * ((gradient - total / n) - (input - mean) * products / n / (variance + epsilon)), the sums running over the rows of n elements
fn apply(
    gradient: gradient_s,
    input: input_s,
    mean: mean_s,
    lack: lack_s,
    variance: variance_s,
    scale: scale_s,
    total: total_s,
    products: products_s,
) -> output_s {
    let divisor = variance + {{ epsilon }};
    let slope = products / {{ count|f32 }} / divisor;
    return scale * (1.0 / sqrt(divisor)) * ((gradient - total / {{ count|f32 }}) - ((input - mean) - lack) * slope);
}
