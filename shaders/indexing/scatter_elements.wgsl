// SCATTER_ELEMENTS: output = input, then output[.., indices[u], ..] = updates[u]
// An index outside the axis drops its update.
fn place(at: source_at, target_at: ptr<function, output_at>) -> bool {
    # for dimension in range(output.rank)
    (*target_at)[{{ dimension }}] = {% if dimension == axis %}indices_index(at, {{ output.sizes[axis] }}u){% else %}at[{{ dimension }}]{% endif %};
    # endfor
    return (*target_at)[{{ axis }}] != OUTSIDE;
}
