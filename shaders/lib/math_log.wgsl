// The logarithm and what is made of it. x = 2^n (1 + f) with 1 + f between sqrt(1/2) and sqrt(2), so that
// log x = n ln 2 + log(1 + f). Errors are in ULP, as docs/accuracy.md measures them.

// log of the positive value whose bits these are (as from magnified_bits), plus a small correction.
fn log_of_bits(bits: i32, correction: f32) -> f32 {
    let exponent = (bits - 0x3f3504f3) >> 23u;
    let f = bitcast<f32>(bits - (exponent << 23u)) - 1.0;
    let n = f32(exponent);
    let z = f * f;
    var p = 0.06749809f;
    p = p * f - 0.11671153f;
    p = p * f + 0.11883876f;
    p = p * f - 0.12406116f;
    p = p * f + 0.14220311f;
    p = p * f - 0.16667992f;
    p = p * f + 0.20002073f;
    p = p * f - 0.2500001f;
    p = p * f + 0.33333313f;
    let rest = (p * (f * z) + (n * LN2_LOW + correction)) - 0.5 * z;
    return (f + rest) + n * LN2_HIGH;
}

// The bits of a positive value, a subnormal one's as if the exponent's field went on below zero.
fn magnified_bits(bits: u32) -> i32 {
    return select(bitcast<i32>(bits), bitcast<i32>(f32(i32(bits))) - (149 << 23u), bits < 0x00800000u);
}

// log x: 1 ULP.
fn log_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits - 1u >= 0x7f7fffffu) { // zero, infinity, NaN, negative
        if ((bits & 0x7fffffffu) == 0u) { return negate_f32(infinity_f32()); }
        return select(x, nan_f32(), bits >= 0x80000000u);
    }
    return log_of_bits(magnified_bits(bits), 0.0);
}

// log(1 + high + low) for high > -1 and low far smaller, without losing what 1 + high rounds away.
fn log1p_of_sum(high: f32, low: f32) -> f32 {
    let sum = opaque(1.0 + high);
    let lost = sum_error_f32(1.0, high, sum) + low;
    return log_of_bits(bitcast<i32>(sum), lost / sum);
}

// log(1 + x): 1.5 ULP.
fn log1p_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) < 0x33000000u || (bits & 0x7fffffffu) > 0x7f800000u) { return x; } // below 2^-25, or NaN
    if (bits >= 0xbf800000u) { return select(nan_f32(), negate_f32(infinity_f32()), bits == 0xbf800000u); }
    if (bits == 0x7f800000u) { return x; }
    return log1p_of_sum(x, 0.0);
}

// asinh x = log1p(x + x^2 / (1 + sqrt(1 + x^2))), from 2^13 on log(2x). 2 ULP.
fn asinh_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits < 0x39000000u || bits >= 0x7f800000u) { return x; } // below 2^-13, infinity, NaN
    if (bits >= 0x46000000u) { return with_sign_f32(log_of_bits(bitcast<i32>(bits + 0x800000u), 0.0), x); }
    let size = bitcast<f32>(bits);
    let square = opaque(size * size);
    let more = opaque(square / (1.0 + sqrt(1.0 + square)));
    let sum = opaque(size + more);
    return with_sign_f32(log1p_of_sum(sum, more - opaque(sum - size)), x);
}

// acosh x = log1p(t + sqrt(2t + t^2)), t = x - 1, the root with a correction; from 2^13 on log(2x). 2 ULP.
fn acosh_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits < 0x3f800000u || bits >= 0x7f800000u) { // below 1, infinity, NaN, negative
        return select(nan_f32(), x, is_nan_f32(x) || bits == 0x7f800000u);
    }
    if (bits == 0x3f800000u) { return 0.0; }
    if (bits >= 0x46000000u) { return log_of_bits(bitcast<i32>(bits + 0x800000u), 0.0); }
    let t = x - 1.0;
    let root = sqrt(2.0 * t + t * t);
    let leading = leading_f32(root);
    let rest = ((2.0 * t - leading * leading) + t * t) / (root + leading); // root = leading + rest
    let large = max(t, leading);
    let small = min(t, leading);
    let sum = opaque(large + small);
    return log1p_of_sum(sum, (small - opaque(sum - large)) + rest);
}

// atanh: a polynomial below 1/2, else log((1 + x) / (1 - x)) / 2. 2 ULP.
fn atanh_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits < 0x39000000u) { return x; } // below 2^-13
    if (bits >= 0x3f800000u) { // from 1, and NaN
        return select(select(nan_f32(), with_sign_f32(infinity_f32(), x), bits == 0x3f800000u), x, bits > 0x7f800000u);
    }
    let size = bitcast<f32>(bits);
    if (bits >= 0x3f000000u) {
        let above = opaque(1.0 + size);
        let lost = size - opaque(above - 1.0); // times 0.58, about 1 / above, it corrects the logarithm
        return with_sign_f32(0.5 * log_of_bits(bitcast<i32>(above / (1.0 - size)), lost * 0.58), x);
    }
    let z = x * x;
    var p = 0.18514417f;
    p = p * z + 0.016957397f;
    p = p * z + 0.10524511f;
    p = p * z + 0.10929399f;
    p = p * z + 0.14297815f;
    p = p * z + 0.19999622f;
    p = p * z + 0.33333337f;
    return p * z * x + x;
}
