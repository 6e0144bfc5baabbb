// MAP of a copy of bytes whose rows share no blocks of {{ width }}, a block at a time. Blocks at the ends of rows are stored in
// part. (In a loop: some CPU drivers execute both branches, but not loops that no invocation enters.)
{% include "schedules/locate" %}
const BEGIN = vec2<u64>({{ begin[0] }}lu, {{ begin[1] }}lu); // the bits of a row's first block that belong to it
const END = vec2<u64>({{ end[0] }}lu, {{ end[1] }}lu); // and of its last one
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    let block = at[{{ run }}];
    at[{{ run }}] = 0u;
    let there = output_base() + output_unit(at) / {{ width }}u + block;
    at[{{ run }}] = block * {{ width }}u - {{ first }}u; // before the row's first byte it is a large number
    let whole = at[{{ run }}] < {{ size - width + 1 }}u;
    let bits = input_doubles(at);
    if (whole) { {{ buffer.store }}(there, bits); }
    for (var turn = u32(whole); turn < 1u; turn++) {
        let own = select(END, BEGIN, block == 0u);
        let kept = {{ buffer.load }}(there) & ~own;
        {{ buffer.store }}(there, (bits & own) | kept);
    }
}
{% include "schedules/map_main" %}
