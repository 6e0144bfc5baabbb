// ROWS, tree: one workgroup takes a row. Each invocation merges every {{ launch.workgroup }}-th unit, then the workgroup combines them. If the
// row is short enough it is read once, and each invocation holds its units.
{% import "schedules/row_macros" as row with context %}
{% import "schedules/combine_macros" as combine with context %}
{% include "schedules/locate" %}
{% include "schedules/row_unit" %}
{% macro where_held(unit) %}{{ "if (me < %su) " % (units - unit * launch.workgroup) if not subgroup or (unit == held - 1 and units % launch.workgroup) }}{% endmacro %}
# for stage in stages
{{ combine.together(stage.name ~ "_", [units, launch.workgroup]|min) }}
# endfor
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, {{ combine.parameters() }}) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
{{ combine.numbered() }}
    # for unit in range(held)
    var held{{ unit }}: input_t;
    {{ where_held(unit) }}{ held{{ unit }} = input_load(unit_at(at, me + {{ unit * launch.workgroup }}u)); }
    # endfor
    # for stage in stages
    var {{ stage.name }}_mine: {{ stage.name }}_acc_t;
    {{ "if (me < %su) " % units if not subgroup }}{
        # if not held
        let first = input_load(unit_at(at, me));
        # endif
        # for lane in lanes
        var acc{{ lane.number }} = {{ row.lifted(stage, "held0" if held else "first", lane) }};
        # endfor
        # for unit in range(1, held)
        {{ where_held(unit) }}{
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
        {{ stage.name }}_mine = acc0;
    }
{{ row.finished(stage, "", combine.call(stage.name ~ "_together", stage.name ~ "_mine")) }}
    # endfor
    # if statistics
    if (me == 0u) {
{{ row.stored_statistics() }}
    }
    # endif
    # for name in fixed
    let {{ name }} = {{ name }}_load(at);
    # endfor
    # for unit in range(held)
    {{ where_held(unit) }}{
        let place = unit_at(at, me + {{ unit * launch.workgroup }}u);
        {{ buffer.store }}(output_base() + output_unit(place), output_bits({{ row.computed("place", "held" ~ unit) }}));
    }
    # endfor
    # if not held
    for (var index = me; index < {{ units }}u; index += {{ launch.workgroup }}u) {
        let place = unit_at(at, index);
        let unit = input_load(place);
        {{ buffer.store }}(output_base() + output_unit(place), output_bits({{ row.computed("place", "unit") }}));
    }
    # endif
}
