// REDUCE MIN: min(x); NaN if there is one, -0 below 0
alias acc_t = input_s;
fn lift(value: input_s, index: u32) -> acc_t {
    return value;
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    return {{ a.minimum(b) }};
}
fn finish(acc: acc_t) -> output_s {
    return acc;
}
