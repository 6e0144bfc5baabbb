// A row's sum of e^(x - maximum), with the rounding error of every addition kept beside it.
{% include "softmax/exact_sum" %}
fn finish(acc: acc_t) -> output_s {
    return acc.x + acc.y;
}
