// The range of a tensor, widened to contain 0: NaN counts as 0.
alias acc_t = vec2<f32>; // smallest, largest
fn lift(value: input_s, index: u32) -> acc_t {
    let number = select(value, 0.0, is_nan_f32(value));
    return vec2<f32>(min(number, 0.0), max(number, 0.0));
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    return vec2<f32>(min(a.x, b.x), max(a.y, b.y));
}
fn finish(acc: acc_t) -> output_t {
    return acc;
}
