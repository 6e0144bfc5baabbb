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
    source[{{ dimension }}] = {{ mod("rest", input.sizes[dimension]) }};
    rest = {{ div("rest", input.sizes[dimension]) }};
    # endif
    # endfor
    return input_load(source);
}
