// Conversions as CAST does them: floats to integers truncate and saturate, NaN gives 0; integers wrap; integers and wider
// floats to floats round to nearest, ties to even. If drivers round wrongly or lack a type, integer arithmetic is used.

// ---- from f32

fn f32_to_i32(x: f32) -> i32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size > 0x7f800000u) { return 0; }
    if (size >= 0x4f000000u) { return select(2147483647, -2147483647 - 1, bits != size); } // from 2^31
    return i32(x);
}

fn f32_to_u32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if ((bits >> 31u) == 1u || bits > 0x7f800000u) { return 0u; }
    if (bits >= 0x4f800000u) { return 0xffffffffu; } // from 2^32
    if (bits >= 0x4f000000u) { return ((bits & 0x7fffffu) | 0x800000u) << 8u; } // from 2^31
    return u32(i32(x));
}

// The integer part of a finite f32 below 2^64, without sign.
fn f32_size_to_words(size: u32) -> vec2<u32> {
    if (size < 0x3f800000u) { return vec2<u32>(0u); }
    let exponent = (size >> 23u) - 127u;
    let significand = vec2<u32>((size & 0x7fffffu) | 0x800000u, 0u);
    if (exponent < 23u) { return shift_right_words(significand, 23u - exponent); }
    return shift_left_words(significand, exponent - 23u);
}

fn f32_to_u64_words(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    if ((bits >> 31u) == 1u || bits > 0x7f800000u) { return vec2<u32>(0u); }
    if (bits >= 0x5f800000u) { return vec2<u32>(0xffffffffu); } // from 2^64
    return f32_size_to_words(bits);
}

fn f32_to_i64_words(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    let is_negative = bits != size;
    if (size > 0x7f800000u) { return vec2<u32>(0u); }
    if (size >= 0x5f000000u) { // from 2^63
        return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), is_negative);
    }
    let whole = f32_size_to_words(size);
    return select(whole, negate_words(whole), is_negative);
}

fn f32_to_f64_words(x: f32) -> vec2<u32> {
    let bits = bitcast<u32>(x);
    let sign = bits & 0x80000000u;
    let exponent = (bits >> 23u) & 255u;
    let fraction = bits & 0x7fffffu;
    if (exponent == 255u) { return vec2<u32>(fraction << 29u, sign | 0x7ff00000u | (fraction >> 3u)); }
    if (exponent == 0u) {
        if (fraction == 0u) { return vec2<u32>(0u, sign); }
        let top = firstLeadingBit(fraction); // a subnormal: fraction * 2^-149
        let shifted = shift_left_words(vec2<u32>(fraction, 0u), 52u - top);
        return vec2<u32>(shifted.x, sign | ((874u + top) << 20u) | (shifted.y & 0xfffffu));
    }
    return vec2<u32>(fraction << 29u, sign | ((exponent + 896u) << 20u) | (fraction >> 3u));
}

// ---- from i32 and u32

fn u32_to_f32(x: u32) -> f32 {
    if (x < 0x1000000u) { return f32(x); }
    let shift = firstLeadingBit(x) - 23u;
    let rest = x & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    let quotient = x >> shift;
    let up = select(0u, 1u, rest > middle || (rest == middle && (quotient & 1u) == 1u));
    return bitcast<f32>(((149u + shift) << 23u) + quotient + up); // the leading 1 of the quotient adds 1 to the exponent
}

fn i32_to_f32(x: i32) -> f32 {
    let bits = bitcast<u32>(x);
    let is_negative = x < 0;
    let size = u32_to_f32(select(bits, 0u - bits, is_negative));
    return select(size, -size, is_negative);
}

fn i32_to_u32(x: i32) -> u32 {
    return bitcast<u32>(x);
}

fn u32_to_i32(x: u32) -> i32 {
    return bitcast<i32>(x);
}

fn i32_to_i64_words(x: i32) -> vec2<u32> {
    return vec2<u32>(bitcast<u32>(x), select(0u, 0xffffffffu, x < 0));
}

fn i32_to_u64_words(x: i32) -> vec2<u32> {
    return i32_to_i64_words(x);
}

fn u32_to_i64_words(x: u32) -> vec2<u32> {
    return vec2<u32>(x, 0u);
}

fn u32_to_u64_words(x: u32) -> vec2<u32> {
    return vec2<u32>(x, 0u);
}

fn i32_to_f64_words(x: i32) -> vec2<u32> {
    return i64_words_to_f64_words(i32_to_i64_words(x));
}

fn u32_to_f64_words(x: u32) -> vec2<u32> {
    return u64_words_to_f64_words(vec2<u32>(x, 0u));
}

// ---- from 64-bit integers

fn u64_words_to_f32(x: vec2<u32>) -> f32 {
    if (x.y == 0u) { return u32_to_f32(x.x); }
    // The top 32 bits, the lowest of them standing for all that is cut off: enough to round once.
    let shift = firstLeadingBit(x.y) + 1u;
    let cut = shift_left_words(vec2<u32>(x.x, 0u), 32u - shift).x;
    let top = shift_right_words(x, shift).x | select(0u, 1u, cut != 0u);
    return bitcast<f32>(bitcast<u32>(u32_to_f32(top)) + (shift << 23u));
}

fn i64_words_to_f32(x: vec2<u32>) -> f32 {
    let size = u64_words_to_f32(absolute_words(x));
    return select(size, -size, is_negative_words(x));
}

fn i64_words_to_i32(x: vec2<u32>) -> i32 {
    return bitcast<i32>(x.x);
}

fn i64_words_to_u32(x: vec2<u32>) -> u32 {
    return x.x;
}

fn u64_words_to_i32(x: vec2<u32>) -> i32 {
    return bitcast<i32>(x.x);
}

fn u64_words_to_u32(x: vec2<u32>) -> u32 {
    return x.x;
}

fn i64_words_to_u64_words(x: vec2<u32>) -> vec2<u32> {
    return x;
}

fn u64_words_to_i64_words(x: vec2<u32>) -> vec2<u32> {
    return x;
}

fn u64_words_to_f64_words(x: vec2<u32>) -> vec2<u32> {
    if (x.x == 0u && x.y == 0u) { return x; }
    let top = select(firstLeadingBit(x.x), 32u + firstLeadingBit(x.y), x.y != 0u);
    if (top <= 52u) {
        let exact = shift_left_words(x, 52u - top);
        return vec2<u32>(exact.x, ((1023u + top) << 20u) | (exact.y & 0xfffffu));
    }
    let shift = top - 52u;
    let quotient = shift_right_words(x, shift);
    let rest = x.x & ((1u << shift) - 1u);
    let middle = 1u << (shift - 1u);
    let up = select(0u, 1u, rest > middle || (rest == middle && (quotient.x & 1u) == 1u));
    return add_words(vec2<u32>(quotient.x, ((1023u + top) << 20u) | (quotient.y & 0xfffffu)), vec2<u32>(up, 0u));
}

fn i64_words_to_f64_words(x: vec2<u32>) -> vec2<u32> {
    return u64_words_to_f64_words(absolute_words(x)) | vec2<u32>(0u, x.y & 0x80000000u);
}

// ---- from f64

fn f64_significand(x: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(x.x, (x.y & 0xfffffu) | 0x100000u);
}

fn f64_is_nan(x: vec2<u32>) -> bool {
    let size = x.y & 0x7fffffffu;
    return size > 0x7ff00000u || (size == 0x7ff00000u && x.x != 0u);
}

fn f64_words_to_f32(x: vec2<u32>) -> f32 {
    let sign = x.y & 0x80000000u;
    let exponent = (x.y >> 20u) & 2047u;
    if (f64_is_nan(x)) { return bitcast<f32>(sign | 0x7fc00000u | ((x.y & 0x7ffffu) << 3u) | (x.x >> 29u)); }
    if (exponent >= 1151u) { return bitcast<f32>(sign | 0x7f800000u); } // from 2^128
    if (exponent >= 897u) { // normal in float32 too: from 2^-126
        let quotient = ((exponent - 896u) << 23u) | ((x.y & 0xfffffu) << 3u) | (x.x >> 29u);
        let rest = x.x & 0x1fffffffu;
        let up = select(0u, 1u, rest > 0x10000000u || (rest == 0x10000000u && (quotient & 1u) == 1u));
        return bitcast<f32>(sign | (quotient + up));
    }
    if (exponent < 873u) { return bitcast<f32>(sign); } // below half the smallest subnormal
    let shift = 926u - exponent; // 30 to 53
    let quotient = shift_right_words(f64_significand(x), shift).x;
    let rest = shift_left_words(f64_significand(x), 64u - shift); // what is cut off, as a fraction of 2^64
    let above = rest.y > 0x80000000u || (rest.y == 0x80000000u && rest.x != 0u);
    let tie = rest.y == 0x80000000u && rest.x == 0u;
    return bitcast<f32>(sign | (quotient + select(0u, 1u, above || (tie && (quotient & 1u) == 1u))));
}

// Rounded to odd, so that rounding the result once more, to a half, is as good as rounding once.
fn f64_words_to_f32_odd(x: vec2<u32>) -> f32 {
    let sign = x.y & 0x80000000u;
    let exponent = (x.y >> 20u) & 2047u;
    if (f64_is_nan(x)) { return f64_words_to_f32(x); }
    if (exponent >= 1151u) { return bitcast<f32>(sign | 0x7f800000u); }
    if (exponent < 897u) { return bitcast<f32>(sign); } // far below the smallest half
    let sticky = select(0u, 1u, (x.x & 0x1fffffffu) != 0u);
    return bitcast<f32>(sign | ((exponent - 896u) << 23u) | ((x.y & 0xfffffu) << 3u) | (x.x >> 29u) | sticky);
}

// The integer part of a finite f64 below 2^64, without sign.
fn f64_size_to_words(x: vec2<u32>) -> vec2<u32> {
    let exponent = (x.y >> 20u) & 2047u;
    if (exponent < 1023u) { return vec2<u32>(0u); }
    if (exponent < 1075u) { return shift_right_words(f64_significand(x), 1075u - exponent); }
    return shift_left_words(f64_significand(x), exponent - 1075u);
}

fn f64_words_to_i64_words(x: vec2<u32>) -> vec2<u32> {
    let is_negative = is_negative_words(x);
    if (f64_is_nan(x)) { return vec2<u32>(0u); }
    if (((x.y >> 20u) & 2047u) >= 1086u) { // from 2^63
        return select(vec2<u32>(0xffffffffu, 0x7fffffffu), vec2<u32>(0u, 0x80000000u), is_negative);
    }
    let whole = f64_size_to_words(x);
    return select(whole, negate_words(whole), is_negative);
}

fn f64_words_to_u64_words(x: vec2<u32>) -> vec2<u32> {
    if (f64_is_nan(x) || is_negative_words(x)) { return vec2<u32>(0u); }
    if (((x.y >> 20u) & 2047u) >= 1087u) { return vec2<u32>(0xffffffffu); } // from 2^64
    return f64_size_to_words(x);
}

fn f64_words_to_i32(x: vec2<u32>) -> i32 {
    let is_negative = is_negative_words(x);
    if (f64_is_nan(x)) { return 0; }
    if (((x.y >> 20u) & 2047u) >= 1054u) { return select(2147483647, -2147483647 - 1, is_negative); } // from 2^31
    let whole = bitcast<i32>(f64_size_to_words(x).x);
    return select(whole, -whole, is_negative);
}

fn f64_words_to_u32(x: vec2<u32>) -> u32 {
    if (f64_is_nan(x) || is_negative_words(x)) { return 0u; }
    if (((x.y >> 20u) & 2047u) >= 1055u) { return 0xffffffffu; } // from 2^32
    return f64_size_to_words(x).x;
}
