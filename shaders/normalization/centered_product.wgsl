// Contribution of each element to the gradient of the scale: gradient * (input - mean), the mean in two parts
fn apply(gradient: gradient_s, input: input_s, mean: mean_s, lack: lack_s) -> output_s {
    return gradient * ((input - mean) - lack);
}
