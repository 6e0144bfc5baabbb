// pow: log2 of the base in two parts, times the exponent, and 2 to that power. Errors are in ULP, as docs/accuracy.md
// measures them.

// The sizes of the parts of log2 x: leading has 12 bits, so that its products with the parts of y are exact.
struct Parts {
    leading: f32,
    rest: f32,
}

// log2 of a positive value given as magnified_bits: 2 / ln 2 (s + s^3 / 3 + ...) with s = (m - 1) / (m + 1); s and its
// cube in two parts.
fn log2_parts(bits: i32) -> Parts {
    let exponent = (bits - 0x3f3504f3) >> 23u;
    let m = bitcast<f32>(bits - (exponent << 23u));
    let above = opaque(m + 1.0);
    let lost = m - opaque(above - 1.0); // of m + 1
    let s = (m - 1.0) / above;
    let s_leading = leading_f32(s);
    let above_leading = leading_f32(above);
    let above_rest = (above - above_leading) + lost;
    let s_rest = (((m - 1.0) - s_leading * above_leading) - s_leading * above_rest) / above;
    let s_error = s_rest - (s - s_leading);
    let z = s * s;
    let z_leading = leading_f32(z);
    let z_rest = (s_leading * s_leading - z_leading) + ((s - s_leading) * (s + s_leading) + 2.0 * s * s_error);
    let cube = s_leading * z_leading;
    let cube_leading = leading_f32(cube);
    let cube_rest = (cube - cube_leading) + (s_rest * z_leading + s * z_rest);
    var p = 0.2688f;
    p = p * z + 0.3205989f;
    p = p * z + 0.41219857f;
    p = p * z + 0.57707804f;
    // 2 / (3 ln 2) and 2 / ln 2, their first parts with 12 bits
    let terms = (p * (z * z) * s + cube_rest * 0.9617967f) + cube * 1.2677205e-4f;
    let high = s_leading * 2.884765625f;
    let n = f32(exponent);
    let sum = opaque(n + high);
    let small = cube_leading * 0.961669921875f + ((s_leading * 6.244568e-4f + s_rest * 2.88539f) + terms);
    let low = sum_error_f32(n, high, sum) + small;
    let leading = leading_f32(sum + low);
    return Parts(leading, (sum - leading) + low);
}

// 1 for an odd integer, 0 for an even one, 2 for no integer.
fn parity_f32(y: f32) -> u32 {
    let bits = bitcast<u32>(y) & 0x7fffffffu;
    if (bits == 0u || bits >= 0x4b800000u) { return 0u; } // zero, and from 2^24
    if (bits < 0x3f800000u) { return 2u; }
    let places = 150u - (bits >> 23u); // of the fraction, in the significand
    let significand = (bits & 0x7fffffu) | 0x800000u;
    if ((significand & ((1u << places) - 1u)) != 0u) { return 2u; }
    return (significand >> places) & 1u;
}

// x^y for a positive, finite x and finite y.
fn pow_positive(bits: u32, y: f32) -> f32 {
    let log = log2_parts(magnified_bits(bits));
    let exponent = clamp(y, -1.717987e10f, 1.717987e10f); // far enough: unless x is 1, the result is 0 or infinity
    let y_leading = leading_f32(exponent);
    let product = y_leading * log.leading;
    let rest = (exponent - y_leading) * log.leading + exponent * log.rest;
    let n = floor(clamp(product + rest, -200.0, 200.0) + 0.5);
    let f = clamp((product - n) + rest, -0.6, 0.6);
    var p = 1.5327486e-4f;
    p = p * f + 1.339124e-3f;
    p = p * f + 9.618505e-3f;
    p = p * f + 0.055503592f;
    p = p * f + 0.24022648f;
    p = p * f + 0.6931472f;
    return scale_f32(p * f + 1.0, i32(n));
}

// x to the power of y, special cases as in C: 2 ULP.
fn pow_f32(x: f32, y: f32) -> f32 {
    let x_bits = bitcast<u32>(x);
    let x_size = x_bits & 0x7fffffffu;
    let y_size = bitcast<u32>(y) & 0x7fffffffu;
    if (y_size == 0u || x_bits == 0x3f800000u) { return 1.0; }
    if (x_size > 0x7f800000u || y_size > 0x7f800000u) { return nan_f32(); }
    let is_negative = (bitcast<u32>(y) >> 31u) == 1u;
    if (y_size == 0x7f800000u) {
        if (x_size == 0x3f800000u) { return 1.0; }
        return select(infinity_f32(), 0.0, (x_size < 0x3f800000u) != is_negative);
    }
    var sign = 0u;
    if (x_bits >= 0x80000000u) {
        let parity = parity_f32(y);
        if (parity == 2u && x_size != 0u && x_size != 0x7f800000u) { return nan_f32(); }
        sign = select(0u, 0x80000000u, parity == 1u);
    }
    if (x_size == 0u || x_size == 0x7f800000u) {
        let size = select(0u, 0x7f800000u, (x_size == 0u) == is_negative);
        return bitcast<f32>((size | sign) | opaque_zero());
    }
    return bitcast<f32>(bitcast<u32>(pow_positive(x_size, y)) | sign);
}
