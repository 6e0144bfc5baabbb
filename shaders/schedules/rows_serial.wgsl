// ROWS, serial: one invocation takes a whole row (or, with lanes across rows, several) repeatedly: once for each stage,
// and once to compute its elements. Long rows are taken in runs that are then merged, so that rounding errors do not grow with
// their length; their number is hidden from the compiler, because some drivers take seconds to unroll nested loops.
# if together
// Adjacent invocations then store their rows together, {{ together }} at a time: each takes every {{ 2 * together }}-th unit of them, or every {{ together }}-th in small
// subgroups, and reads common operands once.
# endif
{% import "schedules/row_macros" as row with context %}
{% include "schedules/locate" %}
{% include "schedules/row_unit" %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>{{ ", @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) lanes: u32" if together }}) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    var at: output_at;
    # if together
    _ = locate(min(number, {{ launch.total - 1 }}u), &at);
    # else
    if (number >= {{ launch.total }}u) { return; }
    if (!locate(number, &at)) { return; }
    # endif
    # if group
    # for stage in stages
{{ row.at_once(stage) }}
    # endfor
    # else
    let first = input_load(at);
    # for stage in stages
    # if units <= tile
    # for lane in lanes
    var {{ stage.name }}_run{{ lane.number }} = {{ stage.name }}_open({{ row.value(stage, "first", lane) }});
    # endfor
    for (var index = 1u; index < {{ units }}u; index++) {
        let unit = input_load(unit_at(at, index));
        # for lane in lanes
        {{ stage.name }}_run{{ lane.number }} = {{ stage.name }}_absorb({{ stage.name }}_run{{ lane.number }}, {{ row.value(stage, "unit", lane) }});
        # endfor
    }
    # for lane in lanes
    var {{ stage.name }}_acc{{ lane.number }} = {{ stage.name }}_close({{ stage.name }}_run{{ lane.number }});
    # endfor
    # else
    # for lane in lanes
    var {{ stage.name }}_acc{{ lane.number }} = {{ row.lifted(stage, "first", lane) }};
    # endfor
    for (var start = 1u; start < {{ units }}u + opaque_zero(); start += {{ tile }}u) {
        let opening = input_load(unit_at(at, start));
        # for lane in lanes
        var {{ stage.name }}_run{{ lane.number }} = {{ stage.name }}_open({{ row.value(stage, "opening", lane) }});
        # endfor
        for (var index = start + 1u; index < min(start + {{ tile }}u, {{ units }}u); index++) {
            let unit = input_load(unit_at(at, index));
            # for lane in lanes
            {{ stage.name }}_run{{ lane.number }} = {{ stage.name }}_absorb({{ stage.name }}_run{{ lane.number }}, {{ row.value(stage, "unit", lane) }});
            # endfor
        }
        # for lane in lanes
        {{ stage.name }}_acc{{ lane.number }} = {{ stage.name }}_merge({{ stage.name }}_acc{{ lane.number }}, {{ stage.name }}_close({{ stage.name }}_run{{ lane.number }}));
        # endfor
    }
    # endif
    # if across
    # for lane in lanes
{{ row.finished(stage, lane.result, stage.name ~ "_acc" ~ lane.number) }}
    # endfor
    # else
    # for lane in lanes[1:]
    {{ stage.name }}_acc0 = {{ stage.name }}_merge({{ stage.name }}_acc0, {{ stage.name }}_acc{{ lane.number }});
    # endfor
{{ row.finished(stage, "", stage.name ~ "_acc0") }}
    # endif
    # endfor
    # endif
    # if statistics
    {{ "if (number < %su) " % launch.total if together }}{
{{ row.stored_statistics() }}
    }
    # endif
    # if together
{{ row.stored_together() }}
    # else
    # for name in fixed
    let {{ name }} = {{ name }}_load(at);
    # endfor
    for (var index = 0u; index < {{ units }}u; index++) {
        let place = unit_at(at, index);
        let unit = input_load(place);
        {{ buffer.store }}(output_base() + output_unit(place), output_bits({{ row.computed("place", "unit") }}));
    }
    # endif
}
