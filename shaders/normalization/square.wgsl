// input * input
fn apply(input: input_s) -> output_s {
    return input * input;
}
