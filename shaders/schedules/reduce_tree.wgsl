// REDUCE, tree: one workgroup per unit of the output (per 32-bit word, where units are smaller). Each invocation merges
// every {{ launch.workgroup }}-th unit of the row, then the workgroup combines them.
{% import "schedules/reduce_lanes" as row with context %}
{% import "schedules/combine_macros" as combine with context %}
{% include "schedules/locate" %}
{% if walk.exchange %}
{% include "schedules/exchange" %}
{% endif %}
fn part_of_row(at: output_at, me: u32) -> acc_t {
    # if not subgroup
    if (me >= {{ count }}u) { return acc_t(); }
    # endif
{{ row.walk_row("me", launch.workgroup, count ~ "u") }}
    return acc0;
}
{{ combine.together("", [count, launch.workgroup]|min) }}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, {{ combine.parameters() }}) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
{{ combine.numbered() }}
    # if walk.by_words
    var bits = 0u;
    for (var lane_of_word = 0u; lane_of_word < {{ 32 // unit_bits }}u; lane_of_word++) {
        let unit = number * {{ 32 // unit_bits }}u + lane_of_word;
        var at: output_at;
        if (unit < {{ walk.count }}u && locate(unit, &at)) {
            let all = {{ combine.call("together", "part_of_row(at, me)") }};
            if (me == 0u) { bits |= output_bits({{ row.finished("all", "at") }}) << (lane_of_word * {{ unit_bits }}u); }
        }
        workgroupBarrier();
    }
    if (me == 0u) { {{ buffer.store }}(output_base() + number, bits); }
    # else
    var at: output_at;
    if (!locate(number, &at)) { return; }
    let all = {{ combine.call("together", "part_of_row(at, me)") }};
    # if walk.exchange
    if (me == 0u) { exchange(output_unit(at), output_bits({{ row.finished("all", "at") }})); }
    # else
    if (me == 0u) { {{ buffer.store }}(output_base() + output_unit(at), output_bits({{ row.finished("all", "at") }})); }
    # endif
    # endif
}
