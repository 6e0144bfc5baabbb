// GEMM, split: the sum of the sums of all parts.
fn element(at: output_at) -> output_t {
    var place: partials_at;
    # for dimension in range(output.rank)
    place[{{ dimension + 1 }}] = at[{{ dimension }}];
    # endfor
    var sum = partials_load(place);
    for (var which = 1u; which < {{ parts }}u; which++) {
        place[0] = which;
        sum += partials_load(place);
    }
    return sum;
}
