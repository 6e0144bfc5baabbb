// The exponential function and what is made of it. x = n ln 2 + r with |r| <= ln(2) / 2; e^x = 2^n e^r, where a
// polynomial gives e^r - 1 and 2^n goes into the exponent's bits. Errors are in ULP, as docs/accuracy.md measures them.

const LOG2_E = 1.442695f;
const LN2_HIGH = 0.693359375f; // few bits, so that its multiples are exact
const LN2_LOW = -2.1219444e-4f;
const ROUNDER = 12582912.0f; // 1.5 * 2^23: added to a number, it leaves the nearest integer in the low bits
const ROUNDER_BITS = 0x4b400000u;

// x / ln 2 rounded to an integer, plus ROUNDER.
fn exp_turns(x: f32) -> f32 {
    return opaque(x * LOG2_E + ROUNDER);
}

fn exp_exponent(turns: f32) -> u32 {
    return bitcast<u32>(turns) - ROUNDER_BITS;
}

// x * 2^n, n added to the bits of a number between 0.5 and 2: the bits of ROUNDER are shifted out.
fn times_power(x: f32, turns: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) + (bitcast<u32>(turns) << 23u));
}

fn exp_remainder(x: f32, turns: f32) -> f32 {
    let n = turns - ROUNDER;
    return opaque(x - n * LN2_HIGH) - n * LN2_LOW;
}

// e^r - 1 for |r| <= 0.347, to 2^-24 absolute.
fn expm1_reduced(r: f32) -> f32 {
    var p = 1.382005e-3f;
    p = p * r + 8.368682e-3f;
    p = p * r + 0.041668274f;
    p = p * r + 0.16666521f;
    p = p * r + 0.49999994f;
    return opaque(p * (r * r) + r);
}

// e^x for -87 <= x <= 88; nothing is checked.
fn exp_normal(x: f32) -> f32 {
    let turns = exp_turns(x);
    let power = 1.0 + expm1_reduced(exp_remainder(x, turns));
    return times_power(power, turns);
}

// e^x, as exp_f32, for numbers that are rarely between -87 and 87: those take as long as all others.
fn exp_extreme(x: f32) -> f32 {
    if ((bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u) { return x; }
    let clamped = clamp(x, -104.0, 89.0);
    let turns = exp_turns(clamped);
    return scale_f32(1.0 + expm1_reduced(exp_remainder(clamped, turns)), i32(exp_exponent(turns)));
}

// e^x: 1 ULP, subnormal results rounded by integer arithmetic.
fn exp_f32(x: f32) -> f32 {
    if ((bitcast<u32>(x) & 0x7fffffffu) > 0x42ae0000u) { return exp_extreme(x); } // beyond 87, or NaN
    return exp_normal(x);
}

// e^x for x up to 43, without a branch: 1 ULP. Results too small to be normal are rounded once, or flushed, by a product.
fn exp_bounded(x: f32) -> f32 {
    let reduced = select(x, -104.0, x < -104.0); // of which compilers may make a maximum, which loses NaN
    let turns = exp_turns(reduced);
    let power = 1.0 + expm1_reduced(exp_remainder(reduced, turns));
    let result = times_power(power, turns + 64.0) * 5.421011e-20f; // 2^-64
    return select(result, x, (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u);
}

// e^x - 1: for |x| < 0.69 one polynomial, else 2^n (e^r - 1) + (2^n - 1). 1.5 ULP.
fn expm1_f32(x: f32) -> f32 {
    let size = bitcast<u32>(x) & 0x7fffffffu;
    if (size < 0x33800000u || size > 0x7f800000u) { return x; } // below 2^-24, or NaN
    let clamped = clamp(x, -30.0, 89.0);
    let turns = select(exp_turns(clamped), ROUNDER, size < 0x3f30a3d7u);
    let r = exp_remainder(clamped, turns);
    var p = 2.4839737e-5f;
    p = p * r + 2.0091218e-4f;
    p = p * r + 1.3889752e-3f;
    p = p * r + 8.332661e-3f;
    p = p * r + 0.041666646f;
    p = p * r + 0.16666672f;
    p = p * r + 0.5f;
    let less_one = p * (r * r) + r;
    let half_power = times_power(0.5, turns); // 2^(n - 1), which never overflows
    return 2.0 * (half_power * less_one + (half_power - 0.5));
}

// sinh and cosh of |x| = n ln 2 + r, from sinh and cosh of r: nothing cancels.
struct Hyperbolic {
    sum: f32, // (2^n + 2^-n) / 4
    difference: f32, // (2^n - 2^-n) / 4
    sinh: f32,
    cosh_less_one: f32,
}

fn hyperbolic(x: f32) -> Hyperbolic {
    let size = min(size_of_f32(x), 89.5);
    let turns = select(exp_turns(size), ROUNDER, size < 0.69);
    let r = exp_remainder(size, turns);
    let z = r * r;
    let n = i32(exp_exponent(turns));
    let up = bitcast<f32>(u32(n + 125) << 23u);
    let down = bitcast<f32>(u32(max(125 - n, 0)) << 23u);
    let sinh = ((2.0091444e-4f * z + 8.33266e-3f) * z + 0.16666672f) * (z * r) + r;
    let cosh_less_one = (((2.5082252e-5f * z + 1.3887995e-3f) * z + 0.041666675f) * z + 0.5f) * z;
    return Hyperbolic(up + down, up - down, sinh, cosh_less_one);
}

// sinh by its addition theorem: 1.5 ULP.
fn sinh_f32(x: f32) -> f32 {
    let size = bitcast<u32>(x) & 0x7fffffffu;
    if (size < 0x39000000u || size > 0x7f800000u) { return x; } // below 2^-13, or NaN
    let h = hyperbolic(x);
    return with_sign_f32(2.0 * (h.difference + opaque(h.difference * h.cosh_less_one + h.sum * h.sinh)), x);
}

// cosh by its addition theorem: 2 ULP.
fn cosh_f32(x: f32) -> f32 {
    if (is_nan_f32(x)) { return x; }
    let h = hyperbolic(x);
    return 2.0 * (h.sum + opaque(h.sum * h.cosh_less_one + h.difference * h.sinh));
}

// tanh: a polynomial below 0.625, else 1 - 2 / (e^2x + 1). 1.5 ULP.
fn tanh_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    let size = bitcast<f32>(bits);
    let z = size * size;
    var p = -5.692291e-3f;
    p = p * z + 0.020628165f;
    p = p * z - 0.053736515f;
    p = p * z + 0.13331406f;
    p = p * z - 0.3333328f;
    let near = p * z * size + size;
    let far = 1.0 - 2.0 / (exp_normal(2.0 * min(size, 10.0)) + 1.0);
    return with_sign_f32(select(near, far, bits - 0x3f200000u <= 0x40600000u), x); // from 0.625 to infinity; not NaN
}

// 1 / (1 + e^-x). e^-x = 2^n + 2^n q is added to 1 from its parts, with one rounding less. 2 ULP.
fn sigmoid_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits > 0xc18b0000u || (bits & 0x7fffffffu) > 0x7f800000u) { return exp_extreme(x); } // below -17.4, or NaN
    let reduced = max(-x, -87.0);
    let turns = exp_turns(reduced);
    let power = times_power(1.0, turns);
    let rest = power * expm1_reduced(exp_remainder(reduced, turns));
    let is_large = power > 8388608.0; // 1 + power would be rounded
    return 1.0 / ((power + select(1.0, 0.0, is_large)) + (rest + select(0.0, 1.0, is_large)));
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|), the logarithm by a polynomial over 0 to 1. 2 ULP.
fn softplus_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let size = bits & 0x7fffffffu;
    if (size > 0x418b0000u) { return select(x, exp_extreme(x), bits > size); } // beyond 17.4, or NaN
    let reduced = -size_of_f32(x);
    let turns = exp_turns(reduced);
    let leading = times_power(1.0, turns);
    let rest = leading * expm1_reduced(exp_remainder(reduced, turns));
    let power = opaque(leading + rest);
    let lost = rest - opaque(power - leading);
    var p = 2.0844252e-3f;
    p = p * power - 0.013691135f;
    p = p * power + 0.04211384f;
    p = p * power - 0.08323801f;
    p = p * power + 0.1247948f;
    p = p * power - 0.16135158f;
    p = p * power + 0.19899622f;
    p = p * power - 0.24988864f;
    p = p * power + 0.33332714f;
    p = p * power - 0.49999988f;
    let above = max(x, 0.0);
    let sum = opaque(above + power);
    let left = sum_error_f32(above, power, sum) + lost * (1.0 - 0.5 * power); // 1 - power / 2: about 1 / (1 + power)
    return sum + opaque(p * (power * power) + left);
}
