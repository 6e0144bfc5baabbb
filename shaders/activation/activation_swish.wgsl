// ACTIVATION_SWISH: output = input / (1 + e^-t), t = sigmoid_input_scale * input. For negative t this is
// input * h * h / (1 + h * h), h = e^(t / 2), whose steps stay normal wherever the result is.
fn apply(input: input_s) -> output_s {
    let t = {{ sigmoid_input_scale * input }};
    let h = exp_f32(-0.5 * abs(t));
    let share = select(1.0, h, t < 0.0);
    return (input * share) * (share / (1.0 + h * h));
}
