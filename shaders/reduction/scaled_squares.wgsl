// Sums of squares that neither overflow nor underflow before the result does. Numbers below 2^-42 are squared in units of
// 2^-86, those from 2^42 on in units of 2^86; a sum goes over to the larger unit of two. The rounding errors of squares and
// sums are kept.
const LARGER = 77371252455336267181195264.0f; // 2^86
const SMALLER = 1.2924697071141057e-26f; // 2^-86
alias acc_t = vec4<f32>; // sum, its error, unit: 0, 1, 2 for 2^-86, 1, 2^86; unused
fn unit_of(value: f32) -> f32 {
    let size = bitcast<u32>(value) & 0x7fffffffu;
    return select(select(1.0, 0.0, size < 0x2a800000u), 2.0, size >= 0x54800000u);
}
// What to multiply by, for each unit by which it lies above the middle one, to come to the middle one, and back.
fn to_middle(unit: f32) -> f32 {
    return select(select(1.0, LARGER, unit < 0.5), SMALLER, unit > 1.5);
}
fn from_middle(unit: f32) -> f32 {
    return select(select(1.0, SMALLER, unit < 0.5), LARGER, unit > 1.5);
}
fn lift(value: input_s, index: u32) -> acc_t {
    let unit = unit_of(value);
    let x = value * to_middle(unit);
    let square = opaque(x * x);
    let high = leading_f32(x);
    let low = x - high;
    let rest = ((high * high - square) + 2.0 * high * low) + low * low;
    return vec4<f32>(square, rest, unit, 0.0);
}
// A sum, and its error, in a unit that lies so many above its own. Two above, nothing is left of it.
fn in_unit(sum: vec2<f32>, above: f32) -> vec2<f32> {
    let factor = select(select(0.0, SMALLER, above < 1.5), 1.0, above < 0.5);
    return vec2<f32>(opaque(sum.x * factor) * factor, opaque(sum.y * factor) * factor);
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let unit = max(a.z, b.z);
    let x = in_unit(a.xy, unit - a.z);
    let y = in_unit(b.xy, unit - b.z);
    let sum = opaque(x.x + y.x);
    return vec4<f32>(sum, (x.y + y.y) + sum_error_f32(x.x, y.x, sum), unit, 0.0);
}
fn sum_of_squares(acc: acc_t) -> f32 {
    return select(acc.x + acc.y, acc.x, is_not_finite(acc.x));
}
