// ELEMENT_WISE_CLIP_GRAD1: output = gradient where min < input < max, or where input is NaN; else 0
fn apply(input: input_s, gradient: gradient_s) -> output_s {
    return {{ (input <= min).either(input >= max).select(gradient.constant(0), gradient) }};
}
