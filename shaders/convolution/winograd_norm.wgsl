// CONVOLUTION, Winograd: the norm of the channels of a pixel, sqrt(sum(x * x)), infinite if a square is
alias acc_t = f32;
fn lift(value: f32, index: u32) -> acc_t {
    return value * value;
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    return a + b;
}
fn finish(acc: acc_t) -> f32 {
    return sqrt(acc);
}
