// GEMM, register: an invocation computes {{ tile.rows }} rows by {{ tile.units }} units of four columns, reading both operands straight from memory.
// {{ tile.across }} neighbours lie side by side in the same rows, {{ tile.down }} below each other.
# if sharing > 1
// {{ sharing }} share the units of these rows for the steps of a turn: each reads some, and hands them to its whole subgroup.
# endif
// (The end of a chunk is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/gemm_macros" as gemm with context %}
{% set row_units = tile.rows // width %}
{% set shared_units = row_units * steps %}
alias sum_t = {{ sum_t }};
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32{{ ", @builtin(subgroup_invocation_id) lane: u32" if sharing > 1 }}) {
{{ gemm.workgroup_tile() }}
    # if tile.down > 1
    let column = column_tile * {{ tile.across * tile.units }}u + (me % {{ tile.across }}u){{ " * %du" % tile.units if between == 1 }};
    let row = (row_tile * {{ tile.down }}u + me / {{ tile.across }}u) * {{ tile.rows }}u;
    # else
    let column = column_tile * {{ tile.across * tile.units }}u + me{{ " * %du" % tile.units if between == 1 }};
    let row = row_tile * {{ tile.rows }}u;
    # endif
    # if sharing > 1
    # for first in range(0, shared_units, sharing)
    let a_place{{ first }} = {{ first }}u + lane % {{ [sharing, shared_units - first]|min }}u;
    let a_starts{{ first }} = a_starts(batch, row / {{ width }}u + a_place{{ first }} % {{ row_units }}u);
    # endfor
    # else
    # for unit in range(row_units)
    let a_starts{{ unit }} = a_starts(batch, row / {{ width }}u + {{ unit }}u);
    # endfor
    # endif
    # for unit in range(0, tile.units, 2 if b_fetch.paired else 1)
    let b_starts{{ unit }} = b_starts(batch, column + {{ unit * between }}u);
    # endfor
    # if chunk
{{ gemm.sums("total") }}
    for (var start = first; start < last; start += {{ chunk }}u) {
    let stop = min(start + {{ chunk }}u, last) + params.zero;
    # else
    let start = first;
    let stop = last;
    # endif
{{ gemm.sums("sum") }}
    # for size in inner
    # set dimension = loop.index0
    for (var k{{ dimension }} = {{ "start" if loop.first else "0u" }}; k{{ dimension }} < {{ "stop" if loop.first else size ~ "u" }}; k{{ dimension }} += {{ steps if loop.last else 1 }}u) {
    # endfor
        # if sharing > 1
        # for first in range(0, shared_units, sharing)
        let a_own{{ first }} = a_fetch(a_starts{{ first }}, {{ inner_names }}{{ " + a_place%d / %du" % (first, row_units) if steps > 1 }});
        # endfor
        # for step in range(steps)
        # for unit in range(row_units)
        # set place = step * row_units + unit
        let a{{ step }}_{{ unit }} = subgroupBroadcast(a_own{{ place // sharing * sharing }}, {{ place % sharing }}u);
        # endfor
        # endfor
        # else
        # for unit in range(row_units)
        # if a_fetch.steps > 1
        let a_steps{{ unit }} = a_fetch_steps(a_starts{{ unit }}, {{ inner_names }});
        # endif
        # for step in range(steps)
        let a{{ step }}_{{ unit }} = {{ gemm.unit_of_step("a", a_fetch, unit, step) }};
        # endfor
        # endfor
        # endif
        # for unit in range(tile.units)
        # if b_fetch.steps > 1
        let b_steps{{ unit }} = b_fetch_steps(b_starts{{ unit }}, {{ inner_names }});
        # endif
        # if b_fetch.paired and unit % 2 == 0
        # for step in range(steps)
        let b_pair{{ step }}_{{ unit }} = b_fetch(b_starts{{ unit }}, {{ inner_names }}{{ " + %du" % step if step }});
        # endfor
        # endif
        # for step in range(steps)
        let b{{ step }}_{{ unit }} = {{ gemm.unit_of_step("b", b_fetch, unit, step) }};
        # endfor
        # for row in range(tile.rows)
        # for step in range(steps)
        sum{{ row }}_{{ unit }} += {{ gemm.element_of_unit("a" ~ step ~ "_", row) }} * b{{ step }}_{{ unit }};
        # endfor
        # endfor
        # endfor
    # for size in inner
    }
    # endfor
    # if chunk
{{ gemm.add_to_totals() }}
    }
    # endif
{{ gemm.keep_all(" + params.zero" if keeps_in_loop else "") }}
}
