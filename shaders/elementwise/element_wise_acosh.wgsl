// ELEMENT_WISE_ACOSH: output = inverse hyperbolic cosine of input; NaN below 1
fn apply(input: input_s) -> output_s {
    return acosh_f32(input);
}
