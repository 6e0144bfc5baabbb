// Quotients and square roots that are rounded correctly on every adapter. WGSL allows 2.5 ULP, and any result for divisors
// beyond 2^126: some drivers multiply by reciprocals. The functions that end in _native take the places of divide_f32 and
// sqrt_f32 on adapters whose own are exact, those in _fused where fma is.

fn divide_f32(numerator: f32, denominator: f32) -> f32 {
    return long_quotient(numerator, denominator);
}

fn sqrt_f32(x: f32) -> f32 {
    return long_root(x);
}

// The divisor is opaque: some compilers turn division by a constant into multiplication by its reciprocal.
fn divide_f32_native(numerator: f32, denominator: f32) -> f32 {
    return numerator / opaque(denominator);
}

fn sqrt_f32_native(x: f32) -> f32 {
    return sqrt(x);
}

// The estimate of the reciprocal may be off by 2 ULP. Corrected twice it is the nearest number, unless all bits of the divisor's
// significand are 1; then the third product is the nearest quotient (Markstein, IBM Journal of Research and Development 34, 1990).
// From 2^-50 to 2^50, what the products leave of the numerator is exact. All of it stands before the branch, so that the reciprocal
// is computed once for equal divisors, and several quotients at the same time.
fn divide_f32_fused(numerator: f32, denominator: f32) -> f32 {
    let over = bitcast<u32>(numerator) & 0x7fffffffu;
    let under = bitcast<u32>(denominator) & 0x7fffffffu;
    let divisor = opaque(denominator); // of constants, compilers compute fma in two steps
    let dividend = opaque(numerator);
    let estimate = 1.0 / divisor;
    let better = fma(fma(-divisor, estimate, 1.0), estimate, estimate);
    let reciprocal = fma(fma(-divisor, better, 1.0), better, better);
    let first = dividend * reciprocal;
    let second = fma(fma(-divisor, first, dividend), reciprocal, first);
    let third = fma(fma(-divisor, second, dividend), reciprocal, second);
    let is_divisor = under - 0x26800000u < 0x32000000u && (under & 0x7fffffu) != 0x7fffffu;
    if (!is_divisor || (over - 0x26800000u >= 0x32000000u && over > 0u)) { return long_quotient(numerator, denominator); }
    return select(third, first, over == 0u); // with its sign
}

// The root may be off by 3 ULP. It is corrected, and compared with the middles between it and its neighbors: the next number is the
// nearest if the root leaves more than root * unit. That is a quarter of a squared unit too little, and less than any rest.
fn sqrt_f32_fused(x: f32) -> f32 {
    if (bitcast<u32>(x) - 0x21800000u >= 0x3c000000u) { return long_root(x); } // 2^-60 to 2^60
    let square = opaque(x);
    let estimate = sqrt(square);
    let root = fma(fma(-estimate, estimate, square), 0.5 / estimate, estimate);
    let rest = fma(-root, root, square);
    let bits = bitcast<u32>(root);
    let above = root * bitcast<f32>((bits & 0x7f800000u) - 0x0b800000u); // 2^-23 of its power of two
    let below = select(above, 0.5 * above, (bits & 0x7fffffu) == 0u);
    return bitcast<f32>(bits + select(0u, 1u, rest > above) - select(0u, 1u, rest <= -below));
}

// The exponent of a finite size other than 0, and its significand with 24 bits, also of subnormal numbers.
fn exponent_and_significand(size: u32) -> vec2<i32> {
    let shift = select(0u, countLeadingZeros(size) - 8u, size < 0x00800000u);
    let significand = (size & 0x7fffffu) | 0x800000u;
    return vec2<i32>(i32(max(size >> 23u, 1u)) - i32(shift), i32(select(significand, size << shift, shift > 0u)));
}

// numerator / denominator, by integer arithmetic.
fn long_quotient(numerator: f32, denominator: f32) -> f32 {
    let sign = (bitcast<u32>(numerator) ^ bitcast<u32>(denominator)) & 0x80000000u;
    let over = bitcast<u32>(numerator) & 0x7fffffffu;
    let under = bitcast<u32>(denominator) & 0x7fffffffu;
    if (over - 1u >= 0x7f7fffffu || under - 1u >= 0x7f7fffffu) { // 0, infinity or NaN
        let is_nan = max(over, under) > 0x7f800000u || (over == under);
        let quotient = select(0u, 0x7f800000u, over == 0x7f800000u || under == 0u);
        return bitcast<f32>(select(sign | quotient, 0x7fc00000u, is_nan) | opaque_zero());
    }
    let dividend = exponent_and_significand(over);
    let divisor = exponent_and_significand(under);
    let less = select(0u, 1u, dividend.y < divisor.y);
    let by = u32(divisor.y);
    // An estimate of the significand, and by how much it misses: the true rest is small, so that arithmetic modulo 2^32 finds it.
    let ratio = f32(dividend.y) / f32(divisor.y);
    let estimate = u32(ratio * select(8388608.0, 16777216.0, less == 1u));
    let rest = (u32(dividend.y) << (23u + less)) - estimate * by + 8u * by;
    let missed = rest / by; // 8 too many
    let significand = estimate + missed - 8u;
    let left = rest - missed * by;
    let exponent = dividend.x - divisor.x + 127 - i32(less);
    if (exponent < 1) { // subnormal, or 0
        let shift = u32(min(1 - exponent, 25));
        let middle = 1u << (shift - 1u);
        let dropped = significand & ((1u << shift) - 1u);
        let size = significand >> shift;
        let is_up = dropped > middle || (dropped == middle && (left > 0u || (size & 1u) == 1u));
        return bitcast<f32>(sign | (size + select(0u, 1u, is_up)));
    }
    let nearest = significand + select(0u, 1u, 2u * left > by); // such a quotient never lies halfway between two numbers
    let size = (u32(exponent) << 23u) + (nearest - 0x800000u);
    return bitcast<f32>((sign | select(size, 0x7f800000u, exponent > 254)) | opaque_zero());
}

// The square root of x, by integer arithmetic; NaN below 0.
fn long_root(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits - 1u >= 0x7f7fffffu) { // 0, infinity, NaN, negative
        let is_nan = (bits & 0x7fffffffu) > 0x7f800000u || (bits > 0x80000000u);
        return bitcast<f32>(select(bits, 0x7fc00000u, is_nan) | opaque_zero());
    }
    let parts = exponent_and_significand(bits);
    // significand * 2^shift is a number below 2^48 whose root has 24 bits. The exponent that is left is even.
    let shift = select(23, 24, (parts.x & 1) == 0);
    var root = u32(sqrt(f32(parts.y) * select(8388608.0, 16777216.0, shift == 24)));
    var rest = i32((u32(parts.y) << u32(shift)) - root * root); // the true rest is small: as above
    while (rest < 0) {
        root -= 1u;
        rest += i32(2u * root + 1u);
    }
    while (rest > i32(2u * root)) {
        rest -= i32(2u * root + 1u);
        root += 1u;
    }
    let nearest = root + select(0u, 1u, rest > i32(root));
    let exponent = (parts.x - 150 - shift) / 2 + 150;
    return bitcast<f32>((u32(exponent) << 23u) + (nearest - 0x800000u));
}
