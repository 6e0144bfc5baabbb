// Mean and variance of a few numbers by their distances from the first one. It is one of them, so their sum of squares is
// never much larger than what is left of it; and the mean in two parts comes for nothing.
alias run_t = vec4<f32>; // the first number, how many follow, the sum of their distances from it, that of the squares
fn open(value: input_s) -> run_t {
    return vec4<f32>(value, 0.0, 0.0, 0.0);
}
fn absorb(run: run_t, value: input_s) -> run_t {
    let apart = value - run.x;
    return vec4<f32>(run.x, run.y + 1.0, run.z + apart, run.w + apart * apart);
}
fn close(run: run_t) -> acc_t {
    let count = run.y + 1.0;
    let lack = run.z / count;
    return vec4<f32>(count, run.x, lack, run.w - run.z * lack);
}
