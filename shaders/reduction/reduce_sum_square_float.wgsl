// REDUCE SUM_SQUARE of floats: sum(x * x)
{% include "reduction/scaled_squares" %}
fn finish(acc: acc_t) -> output_s {
    let unit = from_middle(acc.z);
    return opaque(sum_of_squares(acc) * unit) * unit;
}
