// ACTIVATION_SHRINK: output = input - bias above threshold, input + bias below -threshold, else 0; in float32, converted back
// as CAST does
# set x = input.to(compute)
# set outside = (x < -threshold).select(x + bias, x.constant(0))
fn apply(input: input_s) -> output_s {
    return {{ (x > threshold).select(x - bias, outside).to(output.data_type) }};
}
