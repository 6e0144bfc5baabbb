// BATCH_NORMALIZATION_GRAD: output = factor / sqrt(variance + epsilon) * gradient; of the scale's gradient too
fn apply(gradient: gradient_s, variance: variance_s, factor: factor_s) -> output_s {
    return gradient * (factor * (1.0 / sqrt(variance + {{ epsilon }})));
}
