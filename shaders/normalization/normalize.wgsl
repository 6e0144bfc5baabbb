// BATCH_NORMALIZATION, BATCH_NORMALIZATION_TRAINING, MEAN_VARIANCE_NORMALIZATION2:
// output = scale * (input - mean) / sqrt(variance + epsilon) + bias, the mean in two parts
fn apply(
    input: input_s, mean: mean_s, lack: lack_s, variance: variance_s, scale: scale_s, bias: bias_s
) -> output_s {
    return ((input - mean) - lack) * (scale * (1.0 / sqrt(variance + {{ epsilon }}))) + bias;
}
