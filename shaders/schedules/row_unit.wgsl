// The coordinates of a unit of a row from its row-major index over the axes.
fn unit_at(row: output_at, index: u32) -> output_at {
    var at = row;
    var rest = index;
    # for dimension in axes|reverse
    # if loop.last
    at[{{ dimension }}] = rest;
    # else
    at[{{ dimension }}] = {{ mod("rest", output.sizes[dimension]) }};
    rest = {{ div("rest", output.sizes[dimension]) }};
    # endif
    # endfor
    return at;
}
