// ELEMENT_WISE_CLIP1: output = max(min, min(input, max))
fn apply(input: input_s) -> output_s {
    return {{ input.clipped(min, max) }};
}
