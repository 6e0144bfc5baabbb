// ACTIVATION_SOFTPLUS: output = log(1 + e^(steepness * input)) / steepness, which is the input itself where the
// power is large
fn apply(input: input_s) -> output_s {
    let steep = {{ steepness * input }};
    return select(softplus_f32(steep) / {{ steepness }}, input, steep > 20.0);
}
