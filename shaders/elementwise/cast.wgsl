// CAST: output = input, converted: floats truncate and saturate, integers wrap, NaN becomes 0 in integers
fn apply(input: input_s) -> output_s {
    return {{ input.to(output.data_type) }};
}
