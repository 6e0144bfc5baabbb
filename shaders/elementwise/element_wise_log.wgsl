// ELEMENT_WISE_LOG: output = natural logarithm of input; -infinity at 0, NaN below
fn apply(input: input_s) -> output_s {
    return log_f32(input);
}
