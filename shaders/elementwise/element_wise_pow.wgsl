// ELEMENT_WISE_POW: output = input ^ exponent in float32, special cases as in C's pow; an integer output is converted as CAST
// does. Integers of 32 bits as exponents of floats, and integers to the power of integers, have bodies of their own.
# set x = input.to(compute)
fn apply(input: input_s, exponent: exponent_s) -> output_s {
    return {{ x.call("pow", exponent.to(compute)).to(output.data_type) }};
}
