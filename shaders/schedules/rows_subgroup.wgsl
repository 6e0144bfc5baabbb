// ROWS, by subgroups: {{ launch.workgroup }} invocations hold the units of a row in registers, each every {{ launch.workgroup }}-th of them, so that it is read once,
// and exchange their results of each stage. They take up to {{ launch.items_per_invocation }} rows sequentially.
{% import "schedules/row_macros" as row with context %}
{% import "reduction/trees" as trees %}
{% include "schedules/locate" %}
{% include "schedules/row_unit" %}
# set rest = units % launch.workgroup
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
    let first = (group.x + group.y * {{ launch.grid[0] }}u) * {{ launch.items_per_invocation }}u;
    for (var number = first; number < min(first + {{ launch.items_per_invocation }}u, {{ launch.total }}u); number++) {
        var at: output_at;
        _ = locate(number, &at);
        # for unit in range(held)
        let unit{{ unit }} = input_load(unit_at(at, {{ "min(" if rest and loop.last }}me + {{ unit * launch.workgroup }}u{{ ", %su)" % (units - 1) if rest and loop.last }}));
        # endfor
        # for stage in stages
        # for numbers in groups
        let {{ stage.name }}_group{{ loop.index0 }} = {{ stage.name }}_lift{{ numbers|length * output.lanes }}({{ row.values(stage, numbers, lanes) }});
        # endfor
        # set whole = groups|length - (1 if rest else 0)
        # if rest
        # set last = "%s_group%d" % (stage.name, whole)
        let {{ stage.name }}_most = {{ trees.calls_of(stage.name ~ "_merge", stage.name ~ "_group#", whole) }};
        let {{ stage.name }}_own = select({{ stage.name }}_most, {{ stage.name }}_merge({{ stage.name }}_most, {{ last }}), me < {{ rest }}u);
        # else
        let {{ stage.name }}_own = {{ trees.calls_of(stage.name ~ "_merge", stage.name ~ "_group#", whole) }};
        # endif
{{ row.finished(stage, "", trees.calls_of(stage.name ~ "_merge", "subgroupBroadcast(" ~ stage.name ~ "_own, #u)", launch.workgroup)) }}
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
        {{ "if (me < %su) " % rest if rest and loop.last }}{
            let place = unit_at(at, me + {{ unit * launch.workgroup }}u);
            {{ buffer.store }}(output_base() + output_unit(place), output_bits({{ row.computed("place", "unit%d" % unit) }}));
        }
        # endfor
    }
}
