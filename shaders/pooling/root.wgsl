// LP_POOLING1: output = (the sum of |x|^p)^(1 / p)
# if scaled
// The sum is that of elements divided by the largest.
{% include "pooling/scale" %}
fn apply(input: input_s, largest: largest_s) -> output_s {
    return pow_f32(input, 1.0 / {{ p|f32 }}) * scale(largest);
}
# else
fn apply(input: input_s) -> output_s {
    return pow_f32(input, 1.0 / {{ p|f32 }});
}
# endif
