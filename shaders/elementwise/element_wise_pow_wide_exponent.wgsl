// ELEMENT_WISE_POW of a float by an integer of 32 bits, which float32 cannot hold: exponent = high + low, both float32, and
// |input| ^ exponent = |input| ^ high * e ^ (low * log |input|); the sign is the exponent's parity.
# set high = exponent.to(compute)
# set lost = (exponent - high.to(exponent.data_type)).to(signed)
fn apply(input: input_s, exponent: exponent_s) -> output_s {
    let size = size_of_f32(input);
    let low = {{ lost.to(compute) }};
    let more = select(clamp(low * log_f32(size), -1.0, 1.0), 0.0, low == 0.0); // larger where the power is 0 or infinite
    let is_odd = (bitcast<u32>(exponent) & 1u) == 1u;
    return with_sign_f32(pow_f32(size, {{ high }}) * exp_f32(more), select(1.0, input, is_odd));
}
