// The error function, its complement, and gelu. Far from zero the complement is e^(-x^2) times a smooth factor; x^2 is
// split so that its rounding error does not grow in the exponent. Errors are in ULP, as docs/accuracy.md measures them.

// (base + more) * e^(-scale x^2), for scale 1 or 1/2, base between 1/16 and 1, x below 16. Rounded once, at the end: the
// power of two goes into the exponent's bits as far as the result stays normal, the rest is a factor.
fn bell(x: f32, scale: f32, base: f32, more: f32) -> f32 {
    let leading = leading_f32(x);
    let square = scale * leading * leading;
    let rest = scale * (x - leading) * (x + leading);
    let turns = opaque(ROUNDER - (square + rest) * LOG2_E);
    let n = turns - ROUNDER;
    let high = opaque(-square - n * LN2_HIGH);
    let low = n * LN2_LOW + rest;
    let r = opaque(high - low);
    let lost = (high - r) - low;
    let change = (base + more) * expm1_reduced(r) + (more + base * lost);
    let normal_turns = max(turns, ROUNDER - 120.0);
    let subnormal_power = bitcast<f32>(0x3f800000u + ((bitcast<u32>(turns) - bitcast<u32>(normal_turns)) << 23u));
    return times_power(base + opaque(change), normal_turns) * subnormal_power;
}

// erf: a polynomial below 0.95, else 1 - e^(a polynomial). 1.5 ULP.
fn erf_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    let z = x * x;
    var p = 8.218049e-5f;
    p = p * z - 8.106697e-4f;
    p = p * z + 5.1978645e-3f;
    p = p * z - 0.026858121f;
    p = p * z + 0.11283672f;
    p = p * z - 0.37612632f;
    p = p * z + 0.12837917f;
    let near = select(p * x + x, x * 1.1283792f, bits < 0x0d000000u); // 2 / sqrt pi; p * x might be flushed
    let size = min(bitcast<f32>(bits), 3.95);
    var q = -1.959314e-4f;
    q = q * size + 3.0431673e-3f;
    q = q * size - 0.022226745f;
    q = q * size + 0.10393127f;
    q = q * size + 0.6371826f;
    q = q * size + 0.12767543f;
    q = q * size + 1.9572247e-4f;
    let far = with_sign_f32(1.0 - exp_normal(-(q + size)), x);
    return select(near, far, bits - 0x3f733333u <= 0x400ccccdu); // from 0.95 to infinity; not NaN
}

// erfc: near zero 1 - erf x; from 1/2 a polynomial in x - 1; from 1.25 e^(-x^2) / x times a polynomial in
// (x - 1) / (x + 1); far below zero 2 - erfc(-x). 2 ULP.
fn erfc_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits < 0x3f000000u) { return 1.0 - erf_f32(x); }
    if (bits > 0x7f800000u) { return x; }
    let size = min(bitcast<f32>(bits), 10.5);
    if (size < 1.25) {
        let s = size - 1.0;
        var q = 1.8949081e-3f;
        q = q * s + 3.90839e-3f;
        q = q * s - 0.015277497f;
        q = q * s - 4.4441195e-3f;
        q = q * s + 0.06920781f;
        q = q * s - 0.06919687f;
        q = q * s - 0.13837025f;
        q = q * s + 0.41510782f;
        q = q * s - 0.4151075f;
        let middle = 0.1572992f + opaque(q * s);
        return select(middle, 2.0 - middle, x < 0.0);
    }
    let t = (size - 1.0) / (size + 1.0);
    var p = 6.869451e-3f;
    p = p * t - 0.031802535f;
    p = p * t + 0.037555933f;
    p = p * t - 2.7845663e-3f;
    p = p * t + 0.026720282f;
    p = p * t - 0.042229287f;
    p = p * t - 0.16647282f;
    p = p * t + 0.3087371f;
    p = p * t;
    // (0.4276 + p) / size in two parts
    let factor = opaque(0.42758358f + p);
    let quotient = factor / size;
    let leading = leading_f32(size);
    let quotient_leading = leading_f32(quotient);
    let exact = (factor - quotient_leading * leading) - quotient_leading * (size - leading);
    let rest = (exact - (quotient - quotient_leading) * size) + (p - opaque(factor - 0.42758358f));
    let tail = bell(size, 1.0, quotient, rest / size);
    return select(tail, 2.0 - tail, x < 0.0);
}

// x erfc(x / sqrt 2) / 2 from 0.6 to infinity, e^(-x^2 / 2) times a polynomial in (x - 3/2) / (x + 3/2): 2 ULP.
// The complement by itself would have to round x / sqrt 2, an error that grows x^2 times.
fn erfc_tail_f32(x: f32) -> f32 {
    let size = min(x, 15.0);
    let t = (size - 1.5) / (size + 1.5);
    var p = 1.0513027e-3f;
    p = p * t - 5.050738e-4f;
    p = p * t - 2.239754e-3f;
    p = p * t - 2.4727501e-3f;
    p = p * t + 8.577236e-4f;
    p = p * t + 0.010794645f;
    p = p * t + 0.017759668f;
    p = p * t - 0.019798063f;
    p = p * t - 0.1262971f;
    p = p * t + 0.21112123f;
    return bell(size, 0.5, 0.308671f, p * t);
}

// gelu: x (1 + erf(x / sqrt 2)) / 2. Near zero x (1/2 + a polynomial), else by the complement's tail: below zero that
// with its sign, above what it leaves of x. 2 ULP.
fn gelu_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    let tail = erfc_tail_f32(bitcast<f32>(bits));
    let z = x * x;
    var q = 1.19539494e-4f;
    q = q * z - 1.1955603e-3f;
    q = q * z + 9.976427e-3f;
    q = q * z - 0.066490725f;
    q = q * z + 0.3989423f;
    let near = select(0.5 * x + opaque(q * z), 0.5 * x, bits < 0x33000000u);
    let far = select(x - tail, negate_f32(tail), x < 0.0);
    // From 0.6 and below infinity; -infinity gives NaN near and far alike, as the formula does.
    return select(near, far, bits - 0x3f19999au < 0x40666666u);
}
