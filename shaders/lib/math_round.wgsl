// Rounding to integers, remainders and extremes: all exact, by integer arithmetic where an adapter's own floats
// would flush subnormals or lose a zero's sign.

// Towards zero.
fn truncate_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let exponent = (bits >> 23u) & 255u;
    let fraction = 0x7fffffu >> (clamp(exponent, 127u, 150u) - 127u); // from 2^23 on: none
    return bitcast<f32>(bits & select(~fraction, 0x80000000u, exponent < 127u));
}

// Down.
fn floor_f32(x: f32) -> f32 {
    let whole = truncate_f32(x);
    return select(whole, whole - 1.0, (bitcast<u32>(x) >> 31u) == 1u && bitcast<u32>(whole) != bitcast<u32>(x));
}

// Up.
fn ceil_f32(x: f32) -> f32 {
    return negate_f32(floor_f32(negate_f32(x)));
}

// To the nearest integer, halves to the even one.
fn round_half_even_f32(x: f32) -> f32 {
    let size = size_of_f32(x);
    let rounded = opaque(opaque(size + 8388608.0) - 8388608.0); // 2^23: the sum has no place for a fraction
    return select(with_sign_f32(rounded, x), x, bitcast<u32>(size) >= 0x4b000000u);
}

// To the nearest integer, halves away from zero.
fn round_half_away_f32(x: f32) -> f32 {
    let whole = truncate_f32(x);
    let fraction = size_of_f32(x) - size_of_f32(whole);
    return select(whole, with_sign_f32(size_of_f32(whole) + 1.0, x), fraction >= 0.5);
}

// The smaller value; NaN if there is one.
fn min_f32(a: f32, b: f32) -> f32 {
    let smaller = select(b, a, rank_f32(a) < rank_f32(b));
    return select(select(smaller, b, is_nan_f32(b)), a, is_nan_f32(a));
}

// The larger value; NaN if there is one.
fn max_f32(a: f32, b: f32) -> f32 {
    let larger = select(b, a, rank_f32(a) > rank_f32(b));
    return select(select(larger, b, is_nan_f32(b)), a, is_nan_f32(a));
}

// An integer that compares as the value does, -0 below 0.
fn rank_f32(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return bits ^ ((bits >> 31u) & 0x7fffffff);
}

// The bits of remainder * 2^(exponent - 150), for a remainder below 2^24.
fn remainder_bits(remainder: u32, exponent: u32) -> u32 {
    let places = 23u - firstLeadingBit(remainder | 1u);
    if (exponent > places) { return (remainder << places) + ((exponent - places - 1u) << 23u); }
    return remainder << (exponent - 1u); // subnormal
}

// The remainder of positive, finite sizes by long division, 8 bits at a time.
fn long_remainder(a: u32, b: u32) -> u32 {
    let a_exponent = max(a >> 23u, 1u);
    let b_exponent = max(b >> 23u, 1u);
    let divisor = (b & 0x7fffffu) | select(0u, 0x800000u, b >= 0x800000u);
    var remainder = ((a & 0x7fffffu) | select(0u, 0x800000u, a >= 0x800000u)) % divisor;
    var places = a_exponent - b_exponent;
    while (places > 0u) {
        let step = min(places, 8u);
        remainder = (remainder << step) % divisor;
        places -= step;
    }
    return select(0u, remainder_bits(remainder, b_exponent), remainder != 0u);
}

// a - b trunc(a / b), exactly: with the sign of a, as C's fmod.
fn fmod_f32(a: f32, b: f32) -> f32 {
    let a_bits = bitcast<u32>(a) & 0x7fffffffu;
    let b_bits = bitcast<u32>(b) & 0x7fffffffu;
    if (a_bits >= 0x7f800000u || b_bits > 0x7f800000u || b_bits == 0u) { return nan_f32(); }
    if (a_bits < b_bits) { return a; }
    let divisor = bitcast<f32>(b_bits);
    let dividend = bitcast<f32>(a_bits);
    if (b_bits >= 0x20000000u && a_bits < 0x7e800000u && a_bits - b_bits < 0x04800000u) {
        // Quotients below 1024: every product is exact.
        let quotient = floor(dividend / divisor + 0.5);
        let leading = leading_f32(divisor);
        let rest = (dividend - quotient * leading) - quotient * (divisor - leading);
        let size = select(rest, rest + divisor, rest < 0.0);
        return with_sign_f32(select(size, 0.0, size == 0.0), a);
    }
    return with_sign_f32(bitcast<f32>(long_remainder(a_bits, b_bits)), a);
}

// A value without sign times 2^64, through integers where it is subnormal.
fn magnified(bits: u32) -> f32 {
    return select(bitcast<f32>(bits) * 1.8446744e19f, f32(i32(bits)) * 2.5849394e-26f, bits < 0x00800000u);
}

// a - b floor(a / b): with the sign of b, as Python's % and NumPy's mod.
fn floor_mod_f32(a: f32, b: f32) -> f32 {
    let remainder = fmod_f32(a, b);
    if ((bitcast<u32>(remainder) & 0x7fffffffu) == 0u) { return with_sign_f32(0.0, b); }
    let signs = bitcast<u32>(remainder) ^ bitcast<u32>(b);
    if (is_nan_f32(remainder) || (signs >> 31u) == 0u) { return remainder; }
    let size = bitcast<u32>(b) & 0x7fffffffu;
    if (size < 0x0d000000u) { // below 2^-101: added 2^64 times larger, so that nothing is flushed
        let sum = magnified(size) - magnified(bitcast<u32>(remainder) & 0x7fffffffu);
        return with_sign_f32(scale_f32(sum, -64), b);
    }
    return remainder + b;
}
