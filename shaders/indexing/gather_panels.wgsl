// Columns of a matrix in panels: output[.., row, inner] = input[indices[.., row] / panel, indices[.., row] % panel, inner]
// An index outside the matrix gives 0.
fn place(at: output_at, source: ptr<function, input_at>) -> bool {
    var lookup: indices_at;
    # for dimension in range(lead)
    lookup[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    let column = indices_index(lookup, {{ input.sizes[0] }}u * {{ input.sizes[1] }}u);
    if (column == OUTSIDE) { return false; }
    (*source)[0] = column / {{ input.sizes[1] }}u;
    (*source)[1] = column % {{ input.sizes[1] }}u;
    (*source)[2] = at[{{ output.rank - 1 }}];
    return true;
}
