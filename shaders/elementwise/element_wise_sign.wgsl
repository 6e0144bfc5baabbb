// ELEMENT_WISE_SIGN: output = -1 below 0, 1 above 0, else 0, also for NaN
fn apply(input: input_s) -> output_s {
    return {{ (input < 0).select(input.constant(-1), (input > 0).select(input.constant(1), input.constant(0))) }};
}
