// Mean and variance of a row, several numbers at once: those of the numbers are merged with those of the row so far. The sum of
// squared deviations carries what its additions lose.
{% include "normalization/moments_merge" %}
{% include "normalization/moments_of_many" %}
struct run_t { moments: acc_t, lost: f32 }
fn open() -> run_t {
    return run_t();
}
# for count in counts
fn absorb{{ count }}(run: run_t, numbers: array<f32, {{ count }}>) -> run_t {
    let own = lift{{ count }}(numbers);
    let merged = merge(acc_t(run.moments.xyz, 0.0), own);
    let squares = opaque(run.moments.w + merged.w);
    let lost = run.lost + sum_error_f32(run.moments.w, merged.w, squares);
    let is_first = run.moments.x == 0.0;
    return run_t(select(acc_t(merged.xyz, squares), own, is_first), select(lost, 0.0, is_first));
}
# endfor
fn finish(run: run_t) -> vec4<f32> {
    return vec4<f32>(run.moments.yz, (run.moments.w + run.lost) / run.moments.x, run.moments.x);
}
