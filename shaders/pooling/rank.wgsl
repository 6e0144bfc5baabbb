// The rank of what a window sees, the largest number first. Padding comes after all numbers, beside NaN and the smallest integer:
// where it wins, as the first of equal ranks, these are all that the window sees, and the first place stands for them.
fn apply(input: input_s, inside: inside_s) -> output_s {
    return select(output_s(0xffffffffu), descending_{{ input.kind }}(input), inside != 0u);
}
