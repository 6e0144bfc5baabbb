// ELEMENT_WISE_CONSTANT_POW: output = input ^ exponent, special cases as in C's pow
fn apply(input: input_s) -> output_s {
    return {{ input.call("pow", exponent) }};
}
