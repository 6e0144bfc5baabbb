// Columns of a matrix in panels, each of which has lanes of several units: output[.., row, inner] is the element inner of
// column indices[.., row].
// An index outside the matrix gives 0.
fn place(at: output_at, source: ptr<function, input_at>) -> bool {
    var lookup: indices_at;
    # for dimension in range(lead)
    lookup[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    let column = indices_index(lookup, {{ input.sizes[0] }}u * {{ input.sizes[1] }}u * {{ input.sizes[2] }}u * {{ input.sizes[3] }}u);
    if (column == OUTSIDE) { return false; }
    let unit = column / {{ input.sizes[3] }}u;
    let lane = unit / {{ input.sizes[2] }}u;
    (*source)[0] = lane / {{ input.sizes[1] }}u;
    (*source)[1] = lane % {{ input.sizes[1] }}u;
    (*source)[2] = unit % {{ input.sizes[2] }}u;
    (*source)[3] = column % {{ input.sizes[3] }}u;
    (*source)[4] = at[{{ output.rank - 1 }}];
    return true;
}
