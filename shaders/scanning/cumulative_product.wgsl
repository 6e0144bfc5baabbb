// CUMULATIVE_PRODUCT of integers: output[i] = input[0] * ... * input[i], or * input[i - 1], modulo 2^bits
alias acc_t = input_s;
fn start() -> acc_t {
    return {{ input.constant(1) }};
}
fn lift(value: input_s, index: u32) -> acc_t {
    return value;
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    return {{ a * b }};
}
fn finish(acc: acc_t) -> output_s {
    return acc;
}
