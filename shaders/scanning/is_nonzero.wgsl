// 1 where the input is not 0, else 0. Floats by their bits: both zeros are 0; subnormals and NaN are not.
fn apply(input: input_s) -> output_s {
    return {{ input.equals(0).negated().to(output.data_type) }};
}
