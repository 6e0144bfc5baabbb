// REDUCE LOG_SUM_EXP: log(sum(e^x)) = m + log(sum(e^(x - m))) with m the largest element so far. Where m grows, the sum
// before is multiplied by e^d = 2^n (1 + q) in two parts, so that many small steps cost no precision.
alias acc_t = vec4<f32>; // the largest element m; the sum of e^(x - m), its error; unused
fn lift(value: input_s, index: u32) -> acc_t {
    return select(vec4<f32>(value, 1.0, 0.0, 0.0), vec4<f32>(0.0, value, 0.0, 0.0), is_nan_f32(value));
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let top = select(b, a, a.x >= b.x);
    let other = select(a, b, a.x >= b.x);
    let d = select(other.x - top.x, 0.0, other.x == top.x); // both may be infinite
    let reduced = max(d, -87.0);
    let turns = exp_turns(reduced);
    let power = select(times_power(1.0, turns), 0.0, d < -87.0);
    let q = expm1_reduced(exp_remainder(reduced, turns));
    let leading = opaque(other.y * power);
    let following = opaque(leading * q);
    let so_far = opaque(top.y + leading);
    let sum = opaque(so_far + following);
    let lost = sum_error_f32(top.y, leading, so_far) + sum_error_f32(so_far, following, sum);
    return vec4<f32>(top.x, sum, (top.z + other.z * power * (1.0 + q)) + lost, 0.0);
}
fn finish(acc: acc_t) -> output_s {
    if (is_not_finite(acc.y)) { return acc.y; }
    if (is_not_finite(acc.x)) { return acc.x; }
    return acc.x + log1p_f32((acc.y - 1.0) + acc.z);
}
