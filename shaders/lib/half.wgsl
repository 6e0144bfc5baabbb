// Float16 by integer arithmetic: some drivers' own conversions flush subnormals or round wrongly. The functions that end in _unpacked,
// _packed and _by_f16 take their places on adapters on which they are exact.

fn half_of_f32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) { return sign | 0x7e00u | ((size >> 13u) & 0x1ffu); } // NaN, payload kept as far as it goes
    if (size >= 0x477ff000u) { return sign | 0x7c00u; } // 65520 and above round to infinity
    if (size >= 0x38800000u) { return sign | ((size + 0xfffu + ((size >> 13u) & 1u) - 0x38000000u) >> 13u); }
    if (size < 0x33000000u) { return sign; } // below half the smallest subnormal
    let significand = (size & 0x7fffffu) | 0x800000u;
    let shift = 126u - (size >> 23u);
    let rest = significand & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    let quotient = significand >> shift;
    return sign | (quotient + select(0u, 1u, rest > middle || (rest == middle && (quotient & 1u) == 1u)));
}

fn f32_of_half(half: u32) -> f32 {
    let sign = (half & 0x8000u) << 16u;
    let exponent = (half >> 10u) & 31u;
    let fraction = half & 0x3ffu;
    if (exponent == 0u) { return bitcast<f32>(sign | bitcast<u32>(f32(fraction) * 5.9604644775390625e-8)); }
    if (exponent == 31u) { return bitcast<f32>(sign | 0x7f800000u | (fraction << 13u)); }
    return bitcast<f32>(sign | ((exponent + 112u) << 23u) | (fraction << 13u));
}

fn f32_of_half_unpacked(half: u32) -> f32 {
    return unpack2x16float(half).x;
}

fn half_of_f32_packed(x: f32) -> u32 {
    return pack2x16float(vec2<f32>(x, 0.0));
}

fn half_of_f32_by_f16(x: f32) -> u32 {
    return pack2x16float(vec2<f32>(f32(f16(x)), 0.0));
}

// For adapters that compute on halves, where the caller allows it. naga has no bitcast between a word and vec2<f16>; the
// way through f32 is exact.
fn f16_of_half(half: u32) -> f16 {
    return f16(f32_of_half(half));
}

fn half_of_f16(x: f16) -> u32 {
    return half_of_f32(f32(x));
}

// Some drivers let a conversion and its inverse cancel each other.
fn round_to_half(x: f32) -> f32 {
    return f32_of_half(half_of_f32(x) | opaque_zero());
}

fn round_to_half2(x: vec2<f32>) -> vec2<f32> {
    return vec2<f32>(round_to_half(x.x), round_to_half(x.y));
}

fn round_to_half4(x: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(round_to_half(x.x), round_to_half(x.y), round_to_half(x.z), round_to_half(x.w));
}
