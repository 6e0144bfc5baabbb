// LOCAL_RESPONSE_NORMALIZATION_GRAD: output = gradient * (bias + share * total)^-beta - 2 * beta * share * input * weights, the
// weights being summed over all elements in whose region this one lies
fn apply(gradient: gradient_s, input: input_s, total: total_s, weights: weights_s) -> output_s {
    return gradient * pow_f32({{ bias }} + {{ share }} * total, {{ exponent }}) - {{ twice }} * input * weights;
}
