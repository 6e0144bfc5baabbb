// PADDING1, EDGE: output[at] = input[clamp(at - start, 0, size - 1)]
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(output.rank)
    # set first, size = start[dimension], input.sizes[dimension]
    # if first == 0 and size == output.sizes[dimension]
    source[{{ dimension }}] = at[{{ dimension }}];
    # else
    source[{{ dimension }}] = clamp(at[{{ dimension }}], {{ first }}u, {{ first + size - 1 }}u) - {{ first }}u;
    # endif
    # endfor
    return input_load(source);
}
