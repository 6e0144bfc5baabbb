// GEMM, register: an invocation computes {{ tile.rows }} rows by {{ tile.units }} units of four columns, reading both operands straight from memory.
// {{ tile.across }} adjacent invocations are in the same rows, {{ tile.down }} in the same columns.
# if sharing > 1
// {{ sharing }} share the units of these rows for the steps of a turn: each reads some, and hands them to its whole subgroup.
# endif
# if in_memory
// (Sums are elements of arrays, not variables of a loop: some compilers take half the time. They run the body of each loop once more
// than it has turns, with no lane active: inner dimensions have one loop.)
# endif
// (The end of a chunk is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/gemm_macros" as gemm with context %}
{% set row_units = tile.rows // width %}
{% set shared_units = row_units * steps %}
{% set declared = gemm.lane_arrays if in_memory else gemm.sums %}
alias sum_t = {{ sum_t }};
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32{{ ", @builtin(subgroup_invocation_id) lane: u32" if sharing > 1 }}) {
    load_sizes();
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
    # for unit in range(0, tile.units, 2 if b.fetch.paired else 1)
    let b_starts{{ unit }} = b_starts(batch, column + {{ unit * between }}u);
    # endfor
    # if chunk
{{ declared("total") }}
    for (var start = first; start < last; start += {{ chunk }}u) {
    let stop = min(start + {{ chunk }}u, last) + opaque_zero();
    # else
    let start = first;
    let stop = last;
    # endif
{{ declared("sum") }}
    # if in_memory and inner|length > 1
    for (var turn = start * {{ turns }}u; turn < stop * {{ turns }}u; turn++) {
        # for digit in turn_digits
        let k{{ loop.index0 }} = {{ "(%s) * %du" % (digit, steps) if loop.last and steps > 1 else digit }};
        # endfor
    # else
    # for size in inner
    # set dimension = loop.index0
    for (var k{{ dimension }} = {{ "start" if loop.first else "0u" }}; k{{ dimension }} < {{ "stop" if loop.first else size ~ "u" }}; k{{ dimension }} += {{ steps if loop.last else 1 }}u) {
    # endfor
    # endif
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
        # for step in range(steps)
        let a{{ step }}_{{ unit }} = {{ gemm.unit_of_step("a", a.fetch, unit, step) }};
        # endfor
        # endfor
        # endif
        # for unit in range(tile.units)
        # if b.fetch.steps > 1
        let b_steps{{ unit }} = b_fetch_steps(b_starts{{ unit }}, {{ inner_names }});
        # endif
        # if b.fetch.paired and unit % 2 == 0
        # for step in range(steps)
        let b_pair{{ step }}_{{ unit }} = b_fetch(b_starts{{ unit }}, {{ inner_names }}{{ " + %du" % step if step }});
        # endfor
        # endif
        # for step in range(steps)
        let b{{ step }}_{{ unit }} = {{ gemm.unit_of_step("b", b.fetch, unit, step) }};
        # endfor
        # for row in range(tile.rows)
        # if in_memory
        # for lane in range(4)
        # set sum = gemm.lane_of_sum("sum", row, unit, lane)
        {{ sum }} = {{ sum }}{% for step in range(steps) %} + {{ gemm.element_of_unit("a" ~ step ~ "_", row) }} * b{{ step }}_{{ unit }}.{{ "xyzw"[lane] }}{% endfor %};
        # endfor
        # else
        # for step in range(steps)
        sum{{ row }}_{{ unit }} += {{ gemm.element_of_unit("a" ~ step ~ "_", row) }} * b{{ step }}_{{ unit }};
        # endfor
        # endif
        # endfor
        # endfor
    # for size in (inner[:1] if in_memory else inner)
    }
    # endfor
    # if chunk
{{ gemm.add_lanes_to_totals() if in_memory else gemm.add_to_totals() }}
    }
    # endif
{{ gemm.keep_all(opaque=in_memory) }}
}
