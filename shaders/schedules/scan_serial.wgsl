// SCAN, serial: one invocation takes one block of a line (or, with lanes across lines, of several) sequentially.
{% include "schedules/scan_block" %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    let line = {{ mod("number", lines) }};
    let block = {{ div("number", lines) }};
    var at: output_at;
    if (!locate(line, &at)) { return; }
    var state = begin(line, block);
    let end = min((block + 1u) * {{ length }}u, {{ units }}u);
    for (var index = block * {{ length }}u; index < end; index++) {
        let place = walked(at, index);
        advance(place, index, input_load(place), &state);
    }
    # if is_total
    leave(line, block, state);
    # endif
}
