// ACTIVATION_RELU_GRAD: output = gradient where input is above 0, else 0; so also where it is NaN
fn apply(input: input_s, gradient: gradient_s) -> output_s {
    return {{ (input > 0).select(gradient, gradient.constant(0)) }};
}
