// Quantisation: what every operator that stores quantised numbers ends with.

// Rounded to an integer, halves to even, shifted by a zero point in integers, saturated; NaN counts as 0.
fn quantize_f32(x: f32, zero_point: i32, low: i32, high: i32) -> i32 {
    return clamp(clamp(f32_to_i32(round_half_even_f32(x)), -65536, 65536) + zero_point, low, high);
}
