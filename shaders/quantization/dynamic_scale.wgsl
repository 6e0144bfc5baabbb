// DYNAMIC_QUANTIZE_LINEAR, its scale: (largest - smallest) / {{ steps }}, or 1 where the range is empty
fn apply(smallest: smallest_s, largest: largest_s) -> output_s {
    return select(divide_f32(largest - smallest, {{ steps|f32 }}), 1.0, smallest == largest);
}
