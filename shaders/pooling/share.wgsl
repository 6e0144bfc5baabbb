// AVERAGE_POOLING1 of windows that count all their places: output = the sum of what the window sees / how many these are
fn apply(input: input_s) -> output_s {
    return input / {{ count }}.0;
}
