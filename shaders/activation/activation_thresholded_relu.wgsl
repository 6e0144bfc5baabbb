// ACTIVATION_THRESHOLDED_RELU: output = input where it is above alpha, else 0; so also where it is NaN
fn apply(input: input_s) -> output_s {
    return {{ (input > alpha).select(input, input.constant(0)) }};
}
