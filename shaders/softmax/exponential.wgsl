// e^(x - maximum): at most 1, and 1 for the largest element of a row. NaN where the maximum is infinite.
fn apply(input: input_s, maximum: maximum_s) -> output_s {
    return exp_bounded(input - maximum);
}
