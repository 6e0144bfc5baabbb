// RESAMPLE3, antialiased integers: output = input, rounded half to even
fn apply(input: input_s) -> output_s {
    return output_s(round(input));
}
