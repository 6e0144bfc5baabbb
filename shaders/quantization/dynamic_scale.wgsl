// DYNAMIC_QUANTIZE_LINEAR, its scale: (largest - smallest) / {{ steps }}, or 1 where the range is empty. The divisor is opaque:
// some drivers turn division by a constant into multiplication by its reciprocal, which rounds twice.
fn apply(smallest: smallest_s, largest: largest_s) -> output_s {
    return select((largest - smallest) / opaque({{ steps }}.0), 1.0, smallest == largest);
}
