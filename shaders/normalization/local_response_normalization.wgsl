// LOCAL_RESPONSE_NORMALIZATION: output = input / (bias + alpha / local size * total)^beta, the total being the sum of the squares
// of the local region
fn apply(input: input_s, total: total_s) -> output_s {
    return input * pow_f32({{ bias }} + {{ share }} * total, {{ exponent }});
}
