// PADDING1, REFLECTION and SYMMETRIC: there and back again, with edges once (REFLECTION) or twice (SYMMETRIC), is a period;
// output[at] = input[min(fold, last - fold)] with fold = (at - start) mod period
fn element(at: output_at) -> output_t {
    var source: input_at;
    var fold: u32;
    # for dimension in range(output.rank)
    # set first, size = start[dimension], input.sizes[dimension]
    # if first == 0 and size == output.sizes[dimension]
    source[{{ dimension }}] = at[{{ dimension }}];
    # else
    # set last = 2 * size - 2 + edge
    # set period = [last + edge, 1]|max
    fold = {{ mod("(at[" ~ dimension ~ "] + " ~ (-first % period) ~ "u)", period) }};
    source[{{ dimension }}] = min(fold, {{ last }}u - fold);
    # endif
    # endfor
    return input_load(source);
}
