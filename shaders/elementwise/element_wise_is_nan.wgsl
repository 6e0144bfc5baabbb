// ELEMENT_WISE_IS_NAN: output = 1 where input is NaN, else 0
fn apply(input: input_s) -> output_s {
    return {{ input.test("is_nan").to(output.data_type) }};
}
