// REDUCE, tree: one workgroup per unit of the output (per 32-bit word, where units are smaller). Each invocation merges
// every {{ launch.workgroup }}-th unit of the row, then halves are merged in workgroup memory.
{% import "schedules/reduce_lanes" as row with context %}
{% include "schedules/locate" %}
{% if walk.exchange %}
{% include "schedules/exchange" %}
{% endif %}
var<workgroup> parts: array<acc_t, {{ launch.workgroup }}>;
fn merge_row(at: output_at, me: u32) {
    if (me < {{ count }}u) {
{{ row.walk_row("me", launch.workgroup, count ~ "u") }}
        parts[me] = acc0;
    }
    workgroupBarrier();
    for (var half = {{ launch.workgroup // 2 }}u; half > 0u; half = half / 2u) {
        if (me < half && me + half < {{ [count, launch.workgroup]|min }}u) { parts[me] = merge(parts[me], parts[me + half]); }
        workgroupBarrier();
    }
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    # if walk.by_words
    var bits = 0u;
    for (var lane = 0u; lane < {{ 32 // unit_bits }}u; lane++) {
        let unit = number * {{ 32 // unit_bits }}u + lane;
        var at: output_at;
        let inside = unit < {{ walk.count }}u && locate(unit, &at);
        if (inside) { merge_row(at, me); }
        if (inside && me == 0u) { bits |= output_bits({{ finished("parts[0]", "at") }}) << (lane * {{ unit_bits }}u); }
        workgroupBarrier();
    }
    if (me == 0u) { buffer{{ slot }}[output_base() + number] = bits; }
    # else
    var at: output_at;
    if (!locate(number, &at)) { return; }
    merge_row(at, me);
    # if walk.exchange
    if (me == 0u) { exchange(output_unit(at), output_bits({{ finished("parts[0]", "at") }})); }
    # else
    if (me == 0u) { buffer{{ slot }}[output_base() + output_unit(at)] = output_bits({{ finished("parts[0]", "at") }}); }
    # endif
    # endif
}
