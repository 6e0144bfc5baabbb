// Mean and variance of a few numbers, taken one by one (Welford), of their distances from the first: these are small if
// the mean is far from 0, so that the mean in two parts costs nothing.
alias run_t = vec4<f32>; // the first number, the count, the mean distance from the first, sum of squared deviations
fn open(value: input_s) -> run_t {
    return vec4<f32>(value, 1.0, 0.0, 0.0);
}
fn absorb(run: run_t, value: input_s) -> run_t {
    let count = run.y + 1.0;
    let apart = (value - run.x) - run.z;
    let shift = apart / count;
    return vec4<f32>(run.x, count, run.z + shift, run.w + apart * (apart - shift));
}
fn close(run: run_t) -> acc_t {
    return vec4<f32>(run.y, run.x, run.z, run.w);
}
