// RANDOM_GENERATOR: output = word (place mod 4) of the Philox 4x32-10 block of counter + place div 4, where place is the
// element's row-major index. Four adjacent elements in one unit are a whole block.
# set first = ".x" if output.lanes > 1 else ""
fn block_of(at: output_at, place: u32) -> vec4<u32> {
    let counter = vec4<u32>({% for word in range(4) %}{{ resolved("state%d_load" % word) }}(at){{ first }}{{ ", " if not loop.last }}{% endfor %});
    let key = vec2<u32>(state4_load(at){{ first }}, state5_load(at){{ first }});
    return philox_block(counter_after(counter, place / 4u), key);
}

fn element(at: output_at) -> output_t {
    let place = place_load(at);
    # if output.lanes == 1
    return block_of(at, place)[place % 4u];
    # elif output.lanes == 4 and steps[output.packed] == 1
    return block_of(at, place.x);
    # else
    return output_t({% for lane in "xyzw"[:output.lanes] %}block_of(at, place.{{ lane }})[place.{{ lane }} % 4u]{{ ", " if not loop.last }}{% endfor %});
    # endif
}
