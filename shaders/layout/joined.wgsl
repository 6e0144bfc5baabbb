// Two dimensions as one: output[..., i] = input[..., i / {{ input.sizes[output.rank] }}, i % {{ input.sizes[output.rank] }}]
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(output.rank - 1)
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    source[{{ output.rank - 1 }}] = at[{{ output.rank - 1 }}] / {{ input.sizes[output.rank] }}u;
    source[{{ output.rank }}] = at[{{ output.rank - 1 }}] % {{ input.sizes[output.rank] }}u;
    return input_load(source);
}
