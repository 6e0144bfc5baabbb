// Floats: special values by their bits, and arithmetic that compilers must not simplify.

fn is_not_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u;
}

// The value, hidden from the optimiser by a zero that it cannot know: keeps (a + b) - a from becoming b.
fn opaque(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | params.zero);
}
