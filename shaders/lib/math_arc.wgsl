// Arc functions: odd polynomials on a small range, the rest by reflection, with pi in two parts.
// Errors are in ULP, as docs/accuracy.md measures them.

const PI_HIGH = 3.1415927f;
const PI_LOW = -8.742278e-8f;
const HALF_PI_HIGH = 1.5707964f;
const HALF_PI_LOW = -4.371139e-8f;

// (asin r - r) / r as a function of z = r^2, for z <= 1/4.
fn asin_excess(z: f32) -> f32 {
    return ((((0.0421583f * z + 0.02418478f) * z + 0.04546915f) * z + 0.074953094f) * z + 0.16666752f) * z;
}

// asin x; beyond 1/2 by pi/2 - 2 asin(sqrt((1 - x) / 2)), the root with a correction: 1.5 ULP.
fn asin_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits < 0x39000000u || bits > 0x7f800000u) { return x; } // below 2^-13, or NaN
    if (bits > 0x3f800000u) { return nan_f32(); }
    let size = bitcast<f32>(bits);
    if (bits <= 0x3f000000u) { return asin_excess(x * x) * x + x; }
    let z = 0.5 - 0.5 * size;
    let root = sqrt(z);
    let leading = leading_f32(root);
    let rest = select((z - leading * leading) / (root + leading), 0.0, z == 0.0); // root = leading + rest
    let small = HALF_PI_LOW - 2.0 * (rest + root * asin_excess(z));
    return with_sign_f32((HALF_PI_HIGH - 2.0 * leading) + small, x);
}

// acos x; beyond 1/2 by 2 asin(sqrt((1 - x) / 2)): 1.5 ULP.
fn acos_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits > 0x3f800000u) { return select(nan_f32(), x, bits > 0x7f800000u); }
    let size = bitcast<f32>(bits);
    if (bits <= 0x3f000000u) {
        return HALF_PI_HIGH - (x - (HALF_PI_LOW - x * asin_excess(x * x)));
    }
    let z = 0.5 - 0.5 * size;
    let root = sqrt(z);
    let half = root * asin_excess(z) + root;
    return select(2.0 * half, PI_HIGH - (2.0 * half - PI_LOW), x < 0.0);
}

// atan t - t for 0 <= t <= 1. It is added last: pi/2 - t is exact where that counts.
fn atan_excess(t: f32) -> f32 {
    let z = t * t;
    var p = -1.7832672e-3f;
    p = p * z + 0.010870046f;
    p = p * z - 0.031098574f;
    p = p * z + 0.05788227f;
    p = p * z - 0.08399329f;
    p = p * z + 0.10950883f;
    p = p * z - 0.14264016f;
    p = p * z + 0.1999853f;
    p = p * z - 0.333333f;
    return p * z * t;
}

// atan x; beyond 1 by pi/2 - atan(1 / x): 1.5 ULP.
fn atan_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if (bits < 0x39000000u || bits > 0x7f800000u) { return x; } // below 2^-13, or NaN
    let size = bitcast<f32>(bits);
    let is_large = bits > 0x3f800000u;
    let t = select(size, 1.0 / size, is_large);
    let excess = atan_excess(t);
    return with_sign_f32(select(t + excess, (HALF_PI_HIGH - t) - (excess - HALF_PI_LOW), is_large), x);
}

// The angle of the point (x, y), signed zeros and infinities as in C: 2 ULP.
fn atan2_f32(y: f32, x: f32) -> f32 {
    let x_bits = bitcast<u32>(x) & 0x7fffffffu;
    let y_bits = bitcast<u32>(y) & 0x7fffffffu;
    let large = max(x_bits, y_bits);
    let small = min(x_bits, y_bits);
    if (large > 0x7f800000u) { return nan_f32(); }
    var t = 0.0;
    if (large == 0x7f800000u) {
        t = select(0.0, 1.0, small == large);
    } else if (small > 0u) {
        // Adapters may flush subnormals, and divide 0 by 0: two of them are divided as multiples of the smallest.
        let are_subnormal = large < 0x00800000u;
        let over = select(bitcast<f32>(small), f32(small), are_subnormal);
        t = divide_f32(over, select(bitcast<f32>(large), f32(large), are_subnormal));
    }
    let excess = atan_excess(t);
    let is_steep = y_bits > x_bits;
    let is_left = (bitcast<u32>(x) >> 31u) == 1u;
    let first = select(select(t + excess, t, t < 1e-4), (HALF_PI_HIGH - t) - (excess - HALF_PI_LOW), is_steep);
    let second = select((PI_HIGH - t) - (excess - PI_LOW), (HALF_PI_HIGH + t) + (excess + HALF_PI_LOW), is_steep);
    return with_sign_f32(select(first, second, is_left), y);
}
