// REDUCE MAX: max(x); NaN if there is one, 0 above -0
alias acc_t = input_s;
fn lift(value: input_s, index: u32) -> acc_t {
    return value;
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    return {{ a.maximum(b) }};
}
fn finish(acc: acc_t) -> output_s {
    return acc;
}
