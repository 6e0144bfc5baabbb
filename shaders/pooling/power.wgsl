// LP_POOLING1: |x|^p, of which the sum is taken
# if scaled
// The same of x divided by the largest of the window.
{% include "pooling/scale" %}
fn apply(input: input_s, largest: largest_s) -> output_s {
    return pow_f32(divide_f32(size_of_f32(input), scale(largest)), {{ p|f32 }});
}
# else
fn apply(input: input_s) -> output_s {
    return pow_f32(size_of_f32(input), {{ p|f32 }});
}
# endif
