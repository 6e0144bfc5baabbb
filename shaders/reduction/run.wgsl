// A run of numbers that one invocation takes in turn, by lifting and merging each.
alias run_t = acc_t;
fn open(value: input_s) -> run_t {
    return {{ resolved("lift") }}(value, 0u);
}
fn absorb(run: run_t, value: input_s) -> run_t {
    return {{ resolved("merge") }}(run, {{ resolved("lift") }}(value, 0u));
}
fn close(run: run_t) -> acc_t {
    return run;
}
