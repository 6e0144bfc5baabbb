// SLICE1: output[at] = input[start + step * at]; negative steps count modulo 2^32
// With a row of steps per dimension of the input also SPLIT, JOIN, TILE, SPACE_TO_DEPTH1 and DEPTH_TO_SPACE1 do it.
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(start|length)
    source[{{ dimension }}] = {{ start[dimension] }}u{% for step in steps[dimension] %}{% if step %} + at[{{ loop.index0 }}]{% if step != 1 %} * {{ step % 2 ** 32 }}u{% endif %}{% endif %}{% endfor %};
    # endfor
    return input_load(source);
}
