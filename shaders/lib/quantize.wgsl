// Quantization: the last step of every operator that stores quantized numbers.

// Rounded to an integer, halves to even, shifted by a zero point in integers, saturated; NaN counts as 0. Added to 1.5 * 2^23,
// a number below 2^22 is rounded, and its integer is in the low bits of the sum.
fn quantize_f32(x: f32, zero_point: i32, low: i32, high: i32) -> i32 {
    let number = select(clamp(x, -65536.0, 65536.0), 0.0, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
    return clamp(bitcast<i32>(number + 12582912.0) - 0x4b400000 + zero_point, low, high);
}
