// GEMM, register: an invocation computes {{ tile.rows }} rows by {{ tile.units }} units of four columns, reading both operands straight from memory.
// {{ tile.across }} neighbours lie side by side in the same rows, {{ tile.down }} below each other.
# if broadcast
// Each reads every fourth unit of these rows, and hands them to its whole subgroup: four invocations have all.
# endif
// (The end of a chunk is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/gemm_macros" as gemm with context %}
{% set row_units = tile.rows // width %}
{% set own_units = (row_units + 3) // 4 if broadcast else row_units %}
alias sum_t = {{ sum_t }};
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32{{ ", @builtin(subgroup_invocation_id) lane: u32" if broadcast }}) {
{{ gemm.workgroup_tile() }}
    # if tile.down > 1
    let column = column_tile * {{ tile.across * tile.units }}u + me % {{ tile.across }}u;
    let row = (row_tile * {{ tile.down }}u + me / {{ tile.across }}u) * {{ tile.rows }}u;
    # else
    let column = column_tile * {{ tile.across * tile.units }}u + me;
    let row = row_tile * {{ tile.rows }}u;
    # endif
    # for unit in range(own_units)
    let a_starts{{ unit }} = a_starts(batch, row / {{ width }}u + {{ unit * 4 ~ "u + lane % " ~ [4, row_units - unit * 4]|min if broadcast else unit }}u);
    # endfor
    # for unit in range(tile.units)
    let b_starts{{ unit }} = b_starts(batch, column + {{ unit * tile.across }}u);
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
        # for unit in range(own_units)
        # if a_fetch.steps > 1
        let a_steps{{ unit }} = a_fetch_steps(a_starts{{ unit }}, {{ inner_names }});
        # endif
        # for step in range(steps)
        let {{ "a_own" if broadcast else "a" }}{{ step }}_{{ unit }} = {{ gemm.unit_of_step("a", a_fetch, unit, step) }};
        # endfor
        # endfor
        # if broadcast
        # for step in range(steps)
        # for unit in range(row_units)
        let a{{ step }}_{{ unit }} = subgroupBroadcast(a_own{{ step }}_{{ unit // 4 }}, {{ unit % 4 }}u);
        # endfor
        # endfor
        # endif
        # for unit in range(tile.units)
        # if b_fetch.steps > 1
        let b_steps{{ unit }} = b_fetch_steps(b_starts{{ unit }}, {{ inner_names }});
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
{{ gemm.keep_all() }}
}
