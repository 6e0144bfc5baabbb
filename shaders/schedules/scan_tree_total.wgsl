// SCAN, totals of a tree: each invocation of a workgroup merges every {{ launch.workgroup }}-th unit of a block, then halves are merged in workgroup
// memory.
{% include "schedules/scan_block" %}
var<workgroup> parts: array<acc_t, {{ launch.workgroup }}>;
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let line = number % {{ lines }}u;
    let block = number / {{ lines }}u;
    var at: output_at;
    if (!locate(line, &at)) { return; }
    var state = begin(line, block);
    let end = min((block + 1u) * {{ length }}u, {{ units }}u);
    for (var index = block * {{ length }}u + me; index < end; index += {{ launch.workgroup }}u) {
        let place = walked(at, index);
        advance(place, index, input_load(place), &state);
    }
    parts[me] = state[0];
    workgroupBarrier();
    for (var half = {{ launch.workgroup // 2 }}u; half > 0u; half = half / 2u) {
        if (me < half) { parts[me] = merge(parts[me], parts[me + half]); }
        workgroupBarrier();
    }
    state[0] = parts[0];
    if (me == 0u) { leave(line, block, state); }
}
