// ROWS, tree: one workgroup takes a row. Each invocation merges every {{ launch.workgroup }}-th unit, then halves are merged in workgroup
// memory. Where the row is short enough it is read once, and each invocation holds its units.
{% import "schedules/row_macros" as row with context %}
{% include "schedules/locate" %}
{% include "schedules/row_unit" %}
# for stage in stages
var<workgroup> {{ stage.name }}_parts: array<{{ stage.name }}_acc_t, {{ launch.workgroup }}>;
# endfor
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
    # for unit in range(held)
    var held{{ unit }}: input_t;
    if (me < {{ units - unit * launch.workgroup }}u) { held{{ unit }} = input_load(unit_at(at, me + {{ unit * launch.workgroup }}u)); }
    # endfor
    # for stage in stages
    if (me < {{ units }}u) {
        # if not held
        let first = input_load(unit_at(at, me));
        # endif
        # for lane in lanes
        var acc{{ lane.number }} = {{ row.lifted(stage, "held0" if held else "first", lane) }};
        # endfor
        # for unit in range(1, held)
        if (me < {{ units - unit * launch.workgroup }}u) {
            # for lane in lanes
            acc{{ lane.number }} = {{ stage.name }}_merge(acc{{ lane.number }}, {{ row.lifted(stage, "held" ~ unit, lane) }});
            # endfor
        }
        # endfor
        # if not held
        for (var index = me + {{ launch.workgroup }}u; index < {{ units }}u; index += {{ launch.workgroup }}u) {
            let unit = input_load(unit_at(at, index));
            # for lane in lanes
            acc{{ lane.number }} = {{ stage.name }}_merge(acc{{ lane.number }}, {{ row.lifted(stage, "unit", lane) }});
            # endfor
        }
        # endif
        # for lane in lanes[1:]
        acc0 = {{ stage.name }}_merge(acc0, acc{{ lane.number }});
        # endfor
        {{ stage.name }}_parts[me] = acc0;
    }
    workgroupBarrier();
    for (var half = {{ launch.workgroup // 2 }}u; half > 0u; half = half / 2u) {
        if (me < half && me + half < {{ units }}u) { {{ stage.name }}_parts[me] = {{ stage.name }}_merge({{ stage.name }}_parts[me], {{ stage.name }}_parts[me + half]); }
        workgroupBarrier();
    }
{{ row.finished(stage, "", stage.name ~ "_parts[0]") }}
    # endfor
    # for name in fixed
    let {{ name }} = {{ name }}_load(at);
    # endfor
    # for unit in range(held)
    if (me < {{ units - unit * launch.workgroup }}u) {
        let place = unit_at(at, me + {{ unit * launch.workgroup }}u);
        buffer{{ slot }}[output_base() + output_unit(place)] = output_bits({{ row.computed("place", "held" ~ unit) }});
    }
    # endfor
    # if not held
    for (var index = me; index < {{ units }}u; index += {{ launch.workgroup }}u) {
        let place = unit_at(at, index);
        let unit = input_load(place);
        buffer{{ slot }}[output_base() + output_unit(place)] = output_bits({{ row.computed("place", "unit") }});
    }
    # endif
}
