// The root of the sum of squares; a negative number is one in units of 2^86.
{% include "reduction/scaled_squares" %}
fn finish(acc: acc_t) -> output_s {
    let root = sqrt(sum_of_squares(acc));
    return select(root * from_middle(acc.z), negate_f32(root), acc.z > 1.5);
}
