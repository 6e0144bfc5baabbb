// PADDING1, WRAP: output[at] = input[(at - start) mod size]
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(output.rank)
    # set first, size = start[dimension], input.sizes[dimension]
    # if first == 0 and size == output.sizes[dimension]
    source[{{ dimension }}] = at[{{ dimension }}];
    # else
    source[{{ dimension }}] = {{ mod("(at[" ~ dimension ~ "] + " ~ (-first % size) ~ "u)", size) }};
    # endif
    # endfor
    return input_load(source);
}
