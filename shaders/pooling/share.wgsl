// AVERAGE_POOLING1 that includes padding: output = the sum of the window's elements / the window's size
fn apply(input: input_s) -> output_s {
    return input / {{ count|f32 }};
}
