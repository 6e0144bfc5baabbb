// CUMULATIVE_SUMMATION of integers: output[i] = input[0] + ... + input[i], or + input[i - 1], modulo 2^bits
{% include "reduction/reduce_sum" %}
fn start() -> acc_t {
    return {{ input.constant(0) }};
}
