// SLICE1: output[at] = input[start + step * at]; negative steps count modulo 2^32
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(output.rank)
    source[{{ dimension }}] = {{ start[dimension] }}u + at[{{ dimension }}] * {{ step[dimension] % 2 ** 32 }}u;
    # endfor
    return input_load(source);
}
