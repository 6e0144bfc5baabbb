// SCATTER_ND: output = input, then output[indices[tuple, 0..k], window] = updates[tuple, window]
// An index outside its dimension drops its update.
fn place(at: source_at, target_at: ptr<function, output_at>) -> bool {
    var lookup: indices_at;
    # for dimension in range(lead)
    lookup[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for dimension in range(tuple)
    lookup[{{ lead }}] = {{ dimension }}u;
    (*target_at)[{{ dimension }}] = indices_index(lookup, {{ output.sizes[dimension] }}u);
    if ((*target_at)[{{ dimension }}] == OUTSIDE) { return false; }
    # endfor
    # for dimension in range(tuple, output.rank)
    (*target_at)[{{ dimension }}] = at[{{ dimension - tuple + lead }}];
    # endfor
    return true;
}
