// The rank of what a window sees: the largest number first, then padding, then NaN. Padding ties with the smallest integer
// only; then all that the window sees is that.
fn apply(input: input_s, inside: inside_s) -> output_s {
    return select(output_s({{ padding }}), descending_{{ input.kind }}(input), inside != 0u);
}
