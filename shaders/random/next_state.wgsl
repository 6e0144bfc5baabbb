// The generator's state after some blocks: the counter advances, the key is unchanged.
fn element(at: output_at) -> output_t {
    let word = at[{{ output.rank - 1 }}];
    if (word >= 4u) { return select(state4_load(at), state5_load(at), word == 5u); }
    let counter = vec4<u32>({% for word in range(4) %}{{ resolved("state%d_load" % word) }}(at){{ ", " if not loop.last }}{% endfor %});
    return counter_after(counter, {{ blocks }}u)[word];
}
