// Floats: special values by their bits, and arithmetic that compilers must not simplify. Copies of bits preserve
// subnormals on adapters whose arithmetic flushes them.

fn is_not_finite(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u;
}

fn is_nan_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}

fn is_infinity_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) == 0x7f800000u;
}

// The value, hidden from the optimizer by a zero that it cannot know: keeps (a + b) - a from becoming b.
fn opaque(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) | opaque_zero());
}

// Constants that the compiler would reject as literals.
fn infinity_f32() -> f32 {
    return bitcast<f32>(0x7f800000u | opaque_zero());
}

fn nan_f32() -> f32 {
    return bitcast<f32>(0x7fc00000u | opaque_zero());
}

// The value without its sign.
fn size_of_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0x7fffffffu);
}

// The value with its sign turned round; unlike -x also for subnormals, where an adapter flushes them.
fn negate_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ 0x80000000u);
}

// A value without sign, given the sign of another.
fn with_sign_f32(size: f32, sign: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(size) | (bitcast<u32>(sign) & 0x80000000u));
}

// The leading 12 bits of the significand: products of two such parts are exact.
fn leading_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}

// What rounding left out of sum = a + b. The sum must come through opaque().
fn sum_error_f32(a: f32, b: f32, sum: f32) -> f32 {
    let b_part = opaque(sum - a);
    return (a - opaque(sum - b_part)) + (b - b_part);
}

// x * 2^n for positive, normal x and |n| up to 600: rounded where the result is subnormal, infinity beyond range.
fn scale_f32(x: f32, n: i32) -> f32 {
    let bits = bitcast<u32>(x);
    let exponent = i32(bits >> 23u) + n;
    var result = bits + (u32(n) << 23u);
    if (exponent > 254) {
        result = 0x7f800000u;
    } else if (exponent < 1) {
        let shift = u32(min(1 - exponent, 25));
        let significand = (bits & 0x7fffffu) | 0x800000u;
        let up = (1u << (shift - 1u)) - 1u + ((significand >> shift) & 1u);
        result = (significand + up) >> shift;
    }
    return bitcast<f32>(result);
}
