// REDUCE SUM of floats, in float32 with the rounding error of every addition kept beside the sum (Knuth's TwoSum), so that
// the length of a row costs no precision
alias acc_t = vec2<f32>; // sum, its error
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(value, 0.0);
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let sum = opaque(a.x + b.x);
    let b_part = opaque(sum - a.x);
    let a_part = opaque(sum - b_part);
    return vec2<f32>(sum, (a.y + b.y) + ((a.x - a_part) + (b.x - b_part)));
}
fn finish(acc: acc_t) -> output_s {
    return select(acc.x + acc.y, acc.x, is_not_finite(acc.x));
}
