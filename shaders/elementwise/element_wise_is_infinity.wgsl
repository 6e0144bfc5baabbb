// ELEMENT_WISE_IS_INFINITY: output = 1 where input is an infinity that is sought, else 0
fn apply(input: input_s) -> output_s {
    return {{ input.test(sought).to(output.data_type) }};
}
