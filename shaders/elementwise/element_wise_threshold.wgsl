// ELEMENT_WISE_THRESHOLD: output = max(input, min)
fn apply(input: input_s) -> output_s {
    return {{ input.maximum(min) }};
}
