// Sine, cosine and tangent over the whole range. Quarter turns are taken off the argument: up to 1024 by subtracting
// multiples of pi/2 in four parts (Cody and Waite), beyond by multiplying with 2/pi in integer arithmetic (Payne and
// Hanek), where the bits of 2/pi that give multiples of 4 quarter turns are left out and 96 bits after them suffice.
// Errors are in ULP, as docs/accuracy.md measures them.

// 2/pi, after one word of zeros.
const TWO_OVER_PI = array<u32, 8>(
    0u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu
);

struct Turned {
    quarters: u32, // their last two bits count
    angle: f32, // what is left, between -pi/4 and pi/4
}

// A finite size without sign as quarter turns and an angle with half an ULP of error.
fn turned(size: f32) -> Turned {
    if (size > 1024.0) { return turned_far(bitcast<u32>(size)); }
    let turns = opaque(size * 0.63661975f + ROUNDER);
    let n = turns - ROUNDER;
    // Products with the first three parts, of 12 bits each, are exact. What the differences round away is added last.
    let first = opaque(size - n * 1.5703125f);
    let second = n * 4.837513e-4f;
    let third = n * 7.5495336e-8f;
    let high = opaque(first - second);
    let middle = opaque(high - third);
    let lost = ((first - high) - second) + ((high - middle) - third);
    return Turned(bitcast<u32>(turns), middle + opaque(lost - n * 2.563344e-12f));
}

// The same for large sizes, given by their bits.
fn turned_far(bits: u32) -> Turned {
    let significand = (bits & 0x7fffffu) | 0x800000u;
    let first = (bits >> 23u) - 120u;
    let word = first >> 5u;
    let shift = first & 31u;
    let w = vec4<u32>(TWO_OVER_PI[word], TWO_OVER_PI[word + 1u], TWO_OVER_PI[word + 2u], TWO_OVER_PI[word + 3u]);
    let window = (w.xyz << vec3<u32>(shift)) | ((w.yzw >> vec3<u32>(1u)) >> vec3<u32>(31u - shift));
    let low = wide_product(significand, window.z).y;
    let product = add_words(wide_product(significand, window.y), vec2<u32>(low, significand * window.x));
    // The top two bits count quarter turns; rounded to the nearest, the rest is a signed fraction of one.
    let fraction = shift_left_words(product, 2u);
    let is_over = (fraction.y >> 31u) == 1u;
    let distance = select(fraction, negate_words(fraction), is_over);
    let zeros = 31u - firstLeadingBit(distance.y | 1u);
    let leading = (distance.y << zeros) | ((distance.x >> 1u) >> (31u - zeros));
    let angle = u32_to_f32(wide_product(leading, 0xc90fdaa2u).y); // pi/4 * 2^32
    let sign = select(0u, 0x80000000u, is_over);
    let signed_angle = bitcast<f32>((bitcast<u32>(angle) - ((31u + zeros) << 23u)) | sign);
    return Turned((product.y >> 30u) + select(0u, 1u, is_over), signed_angle);
}

// sin r for |r| <= pi/4.
fn sin_reduced(r: f32) -> f32 {
    let z = r * r;
    return (((2.832547e-6f * z - 1.9853066e-4f) * z + 8.333379e-3f) * z - 0.16666667f) * (z * r) + r;
}

// cos r for |r| <= pi/4.
fn cos_reduced(r: f32) -> f32 {
    let z = r * r;
    return 1.0 - (0.5 * z - ((2.4432327e-5f * z - 1.388731e-3f) * z + 0.041666646f) * (z * z));
}

// sin x: 1.5 ULP.
fn sin_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u) { return nan_f32(); }
    if (size < 0x39000000u) { return x; } // below 2^-13
    let t = turned(bitcast<f32>(size));
    let value = select(sin_reduced(t.angle), cos_reduced(t.angle), (t.quarters & 1u) == 1u);
    return bitcast<f32>(bitcast<u32>(value) ^ ((t.quarters & 2u) << 30u) ^ (bits & 0x80000000u));
}

// cos x: 1.5 ULP.
fn cos_f32(x: f32) -> f32 {
    let size = bitcast<u32>(x) & 0x7fffffffu;
    if (size >= 0x7f800000u) { return nan_f32(); }
    let t = turned(bitcast<f32>(size));
    let value = select(cos_reduced(t.angle), sin_reduced(t.angle), (t.quarters & 1u) == 1u);
    return bitcast<f32>(bitcast<u32>(value) ^ (((t.quarters + 1u) & 2u) << 30u));
}

// tan x, sine by cosine: 4 ULP.
fn tan_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size >= 0x7f800000u) { return nan_f32(); }
    if (size < 0x39000000u) { return x; } // below 2^-13
    let t = turned(bitcast<f32>(size));
    let sin = sin_reduced(t.angle);
    let cos = cos_reduced(t.angle);
    let is_odd = (t.quarters & 1u) == 1u;
    let value = select(sin, cos, is_odd) / select(cos, sin, is_odd);
    return bitcast<f32>(bitcast<u32>(value) ^ ((t.quarters & 1u) << 31u) ^ (bits & 0x80000000u));
}
