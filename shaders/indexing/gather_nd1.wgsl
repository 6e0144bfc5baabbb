// GATHER_ND1, GATHER: output[batch, tuple, window] = input[batch, indices[batch, tuple, 0..k], window]
// An index outside its dimension gives 0.
fn place(at: output_at, source: ptr<function, input_at>) -> bool {
    var lookup: indices_at;
    # for dimension in range(lead)
    lookup[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for dimension in range(batch)
    (*source)[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for dimension in range(tuple)
    lookup[{{ lead }}] = {{ dimension }}u;
    (*source)[{{ batch + dimension }}] = indices_index(lookup, {{ input.sizes[batch + dimension] }}u);
    if ((*source)[{{ batch + dimension }}] == OUTSIDE) { return false; }
    # endfor
    # for dimension in range(lead, output.rank)
    (*source)[{{ dimension - lead + batch + tuple }}] = at[{{ dimension }}];
    # endfor
    return true;
}
