// Contribution of each element of a region to the gradients of the others: gradient * input * (bias + share * total)^(-beta - 1)
fn apply(gradient: gradient_s, input: input_s, total: total_s) -> output_s {
    return gradient * input * pow_f32({{ bias }} + {{ share }} * total, {{ exponent }});
}
