// Sums of numbers from 0 to 1 in twice the precision.
alias acc_t = vec2<f32>; // sum, its error
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<f32>(value, 0.0);
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let sum = opaque(a.x + b.x);
    return vec2<f32>(sum, (a.y + b.y) + sum_error_f32(a.x, b.x, sum));
}
