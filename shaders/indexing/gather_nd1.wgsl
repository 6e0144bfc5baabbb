// GATHER_ND1: output[batch, tuple, window] = input[batch, indices[batch, tuple, 0..k], window]
// An index outside its dimension gives 0.
fn element(at: output_at) -> output_t {
    var source: input_at;
    var lookup: indices_at;
    # for dimension in range(lead)
    lookup[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for dimension in range(batch)
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for dimension in range(tuple)
    lookup[{{ lead }}] = {{ dimension }}u;
    source[{{ batch + dimension }}] = indices_index(lookup, {{ input.sizes[batch + dimension] }}u);
    if (source[{{ batch + dimension }}] == OUTSIDE) { return output_t(); }
    # endfor
    # for dimension in range(lead, output.rank)
    source[{{ dimension - lead + batch + tuple }}] = at[{{ dimension }}];
    # endfor
    return input_load(source);
}
