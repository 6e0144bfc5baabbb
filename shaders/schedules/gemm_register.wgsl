// GEMM, register: an invocation computes {{ tile.rows }} rows by {{ tile.units }} units of four columns, reading both operands straight from memory.
// {{ tile.across }} neighbours lie side by side in the same rows, {{ tile.down }} below each other.
# if broadcast
// Each reads one unit of four of these rows, and hands it to its whole subgroup: {{ tile.rows // width }} of them have all.
# endif
// (The end of a chunk is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/gemm_macros" as gemm with context %}
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
    # if broadcast
    let a_starts0 = a_starts(batch, row / {{ width }}u + lane % {{ tile.rows // width }}u);
    # else
    # for unit in range(tile.rows // width)
    let a_starts{{ unit }} = a_starts(batch, row / {{ width }}u + {{ unit }}u);
    # endfor
    # endif
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
    # if steps == 1
        # for unit in range(tile.units)
        let b{{ unit }} = b_fetch(b_starts{{ unit }}, {{ inner_names }});
        # endfor
        # if broadcast
        let a_own = a_fetch(a_starts0, {{ inner_names }});
        # endif
        # for unit in range(tile.rows // width)
        # if broadcast
        let a{{ unit }} = subgroupBroadcast(a_own, {{ unit }}u);
        # else
        let a{{ unit }} = a_fetch(a_starts{{ unit }}, {{ inner_names }});
        # endif
        # endfor
{{ gemm.multiply("a", "b") }}
    # else
        # for unit in range(tile.units)
        let b_steps{{ unit }} = b_fetch_steps(b_starts{{ unit }}, {{ inner_names }});
        # endfor
        # for unit in range(1 if broadcast else tile.rows // width)
        let a_steps{{ unit }} = a_fetch_steps(a_starts{{ unit }}, {{ inner_names }});
        # endfor
        # for step in range(steps)
        # for unit in range(tile.units)
        let b{{ step }}_{{ unit }} = b_steps{{ unit }}[{{ step }}];
        # endfor
        # for unit in range(tile.rows // width)
        # if broadcast
        let a{{ step }}_{{ unit }} = subgroupBroadcast(a_steps0[{{ step }}], {{ unit }}u);
        # else
        let a{{ step }}_{{ unit }} = a_steps{{ unit }}[{{ step }}];
        # endif
        # endfor
{{ gemm.multiply("a" ~ step ~ "_", "b" ~ step ~ "_") }}
        # endfor
    # endif
    # for size in inner
    }
    # endfor
    # if chunk
{{ gemm.add_to_totals() }}
    }
    # endif
{{ gemm.keep_all() }}
}
