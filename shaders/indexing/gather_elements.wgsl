// GATHER_ELEMENTS: output[.., c, ..] = input[.., indices[.., c, ..], ..]
// An index outside the axis gives 0.
fn place(at: output_at, source: ptr<function, input_at>) -> bool {
    # for dimension in range(output.rank)
    (*source)[{{ dimension }}] = {% if dimension == axis %}indices_index(at, {{ input.sizes[axis] }}u){% else %}at[{{ dimension }}]{% endif %};
    # endfor
    return (*source)[{{ axis }}] != OUTSIDE;
}
