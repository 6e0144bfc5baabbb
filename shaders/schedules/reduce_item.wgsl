// The unit with a row-major index over the reduced dimensions, of the row at `at`.
fn item(at: output_at, index: u32) -> input_t {
    var source: input_at;
    # for dimension in range(input.rank) if dimension not in axes
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    var rest = index;
    # for dimension in axes|reverse
    # if loop.last
    source[{{ dimension }}] = rest;
    # else
    source[{{ dimension }}] = rest % {{ input.sizes[dimension] }}u;
    rest = rest / {{ input.sizes[dimension] }}u;
    # endif
    # endfor
    return input_load(source);
}
