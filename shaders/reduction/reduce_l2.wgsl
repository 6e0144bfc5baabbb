// REDUCE L2: sqrt(sum(x * x)), finite wherever the root is
{% include "reduction/scaled_squares" %}
fn finish(acc: acc_t) -> output_s {
    return sqrt(sum_of_squares(acc)) * from_middle(acc.z);
}
