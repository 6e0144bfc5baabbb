// Two dimensions as one: output[..., i] = input[..., i / {{ input.sizes[output.rank] }}, i % {{ input.sizes[output.rank] }}]
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(output.rank - 1)
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    source[{{ output.rank - 1 }}] = {{ div("at[" ~ (output.rank - 1) ~ "]", input.sizes[output.rank]) }};
    source[{{ output.rank }}] = {{ mod("at[" ~ (output.rank - 1) ~ "]", input.sizes[output.rank]) }};
    return input_load(source);
}
