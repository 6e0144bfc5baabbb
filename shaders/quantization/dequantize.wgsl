// DEQUANTIZE, ELEMENT_WISE_DEQUANTIZE_LINEAR: output = (input - zero_point) * scale, the difference exact in integers
fn apply(input: input_s, scale: scale_s, zero_point: zero_point_s) -> output_s {
    return {{ (input.to(integer) - zero_point.to(integer)).to(compute) }} * scale;
}
