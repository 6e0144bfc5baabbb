// LP_NORMALIZATION: output = input / max(norm, epsilon)
fn apply(input: input_s, norm: norm_s) -> output_s {
    # if form == "plain"
    return {{ input / norm.maximum(epsilon) }};
    # elif form == "scaled"
    // The norm comes in units of 2^{{ exponent }}, in which no sum of so many absolute values exceeds float32.
    return {{ input / norm.maximum(epsilon_of_unit) }} * {{ of_unit }};
    # else
    // A negative norm is one in units of 2^{{ exponent }}: it, or what it is the root of, may exceed float32.
    let is_large = bitcast<u32>(norm) >= 0x80000000u;
    let guard = select({{ epsilon }}, {{ epsilon_of_unit }}, is_large);
    return divide_f32(input, max_f32(size_of_f32(norm), guard)) * select(1.0, {{ of_unit }}, is_large);
    # endif
}
