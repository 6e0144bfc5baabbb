// Sums in twice the precision: the rounding error of every addition is kept beside the sum (Knuth's TwoSum), so that the
// length of a row costs no precision.
alias acc_t = vec2<f32>; // sum, its error
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let sum = opaque(a.x + b.x);
    return vec2<f32>(sum, (a.y + b.y) + sum_error_f32(a.x, b.x, sum));
}
# if at_once|default(0)
alias run_t = f64; // the sum of many numbers
fn close(sum: run_t) -> acc_t {
    let rounded = opaque(f32(sum)); // else compilers take it for the sum itself
    return vec2<f32>(rounded, f32(sum - f64(rounded)));
}
# endif
