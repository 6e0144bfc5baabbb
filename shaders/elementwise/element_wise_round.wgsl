// ELEMENT_WISE_ROUND: output = input rounded to an integer: truncate, round_half_even or round_half_away
fn apply(input: input_s) -> output_s {
    return {{ input.call(rounding) }};
}
