// Bfloat16 is the upper half of a float32.

fn f32_of_bfloat16(half: u32) -> f32 {
    return bitcast<f32>(half << 16u);
}

// Rounds to nearest even; NaN stays NaN.
fn bfloat16_of_f32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let rounded = (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
    return select(rounded, (bits >> 16u) | 0x40u, (bits & 0x7fffffffu) > 0x7f800000u);
}

fn round_to_bfloat16(x: f32) -> f32 {
    return f32_of_bfloat16(bfloat16_of_f32(x));
}

fn round_to_bfloat16_2(x: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(round_to_bfloat16(x.x), round_to_bfloat16(x.y));
}

fn round_to_bfloat16_4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(round_to_bfloat16(x.x), round_to_bfloat16(x.y), round_to_bfloat16(x.z), round_to_bfloat16(x.w));
}
