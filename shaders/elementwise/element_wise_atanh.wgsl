// ELEMENT_WISE_ATANH: output = inverse hyperbolic tangent of input; infinity at 1 and -1, NaN beyond
fn apply(input: input_s) -> output_s {
    return atanh_f32(input);
}
