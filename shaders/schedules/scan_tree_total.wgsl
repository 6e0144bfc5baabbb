// SCAN, totals of a tree: each invocation of a workgroup merges every {{ launch.workgroup }}-th unit of a block, then the workgroup combines them.
{% import "schedules/combine_macros" as combine with context %}
{% include "schedules/scan_block" %}
{{ combine.together() }}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, {{ combine.parameters() }}) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
{{ combine.numbered() }}
    let line = {{ mod("number", lines) }};
    let block = {{ div("number", lines) }};
    var at: output_at;
    if (!locate(line, &at)) { return; }
    var state = begin(line, block);
    let end = min((block + 1u) * {{ length }}u, {{ units }}u);
    for (var index = block * {{ length }}u + me; index < end; index += {{ launch.workgroup }}u) {
        let place = walked(at, index);
        advance(place, index, input_load(place), &state);
    }
    state[0] = {{ combine.call("together", "state[0]") }};
    if (me == 0u) { leave(line, block, state); }
}
