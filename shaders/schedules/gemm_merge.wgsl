// GEMM, split: the sum of the sums of all parts.
fn element(at: output_at) -> output_t {
    var place: partials_at;
    # for dimension in range(output.rank)
    place[{{ dimension + 1 }}] = at[{{ dimension }}];
    # endfor
    var sum = partials_load(place);
    for (var part = 1u; part < {{ parts }}u; part++) {
        place[0] = part;
        sum += partials_load(place);
    }
    return sum;
}
