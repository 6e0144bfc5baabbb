// Count, mean and squared deviations of a row, merged pairwise (Chan's update of Welford's): a mean far from 0 does not affect the
// accuracy of the variance. It is kept in two parts, so that small differences from it are accurate.
alias acc_t = vec4<f32>; // count, mean, what the mean lacks, sum of squared deviations
fn lift(value: input_s, index: u32) -> acc_t {
    return vec4<f32>(1.0, value, 0.0, 0.0);
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let count = a.x + b.x;
    let apart = (b.y - a.y) + (b.z - a.z);
    let shift = apart * (b.x / count);
    let lack = a.z + shift;
    let mean = opaque(a.y + lack);
    return vec4<f32>(count, mean, lack - opaque(mean - a.y), (a.w + b.w) + apart * shift * a.x);
}
