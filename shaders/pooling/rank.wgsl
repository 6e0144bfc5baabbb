// The rank of an element of a window, the largest number first. Padding comes after all numbers, with NaN and the smallest integer:
// if it wins, as the first of equal ranks, the window has only these, and the first index represents them.
fn apply(input: input_s, inside: inside_s) -> output_s {
    return select(output_s(0xffffffffu), {{ use("descending_" ~ input.kind) }}(input), inside != 0u);
}
