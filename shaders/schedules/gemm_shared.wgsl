// GEMM, shared: a workgroup brings {{ depth }} steps of both operands into workgroup memory at a time; each of its {{ tile.across }} x {{ tile.down }}
// invocations computes {{ tile.rows }} rows by {{ tile.units }} units of four columns.
// (The end of a chunk is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/gemm_macros" as gemm with context %}
# set row_units = tile.down * tile.rows // 4
# set column_units = tile.across * tile.units
alias sum_t = {{ sum_t }};
var<workgroup> a_slab: array<a_unit_t, {{ depth * row_units }}>;
var<workgroup> b_slab: array<b_unit_t, {{ depth * column_units }}>;
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
{{ gemm.workgroup_tile() }}
    let a_first = row_tile * {{ row_units }}u;
    let b_first = column_tile * {{ column_units }}u;
    let my_column = me % {{ tile.across }}u;
    let my_row = (me / {{ tile.across }}u) * {{ tile.rows // 4 }}u;
    # if chunk
{{ gemm.sums("total") }}
    for (var chunk_start = first * {{ inner_rest }}u; chunk_start < last * {{ inner_rest }}u; chunk_start += {{ chunk * inner_rest }}u) {
    let stop = min(chunk_start + {{ chunk * inner_rest }}u, last * {{ inner_rest }}u) + params.zero;
    # else
    let chunk_start = first * {{ inner_rest }}u;
    let stop = last * {{ inner_rest }}u;
    # endif
{{ gemm.sums("sum") }}
    for (var start = chunk_start; start < stop; start += {{ depth }}u) {
{{ gemm.fill("a", a_fetch, row_units, depth) }}
{{ gemm.fill("b", b_fetch, column_units, depth) }}
        workgroupBarrier();
        for (var step = 0u; step < {{ depth }}u; step++) {
            # for unit in range(tile.rows // 4)
            let a{{ unit }} = a_slab[step * {{ row_units }}u + my_row + {{ unit }}u];
            # endfor
            # for unit in range(tile.units)
            let b{{ unit }} = b_slab[step * {{ column_units }}u + my_column + {{ unit * tile.across }}u];
            # endfor
{{ gemm.multiply("a", "b") }}
        }
        workgroupBarrier();
    }
    # if chunk
{{ gemm.add_to_totals() }}
    }
    # endif
    let column = b_first + my_column;
    let row = (a_first + my_row) * 4u;
{{ gemm.keep_all() }}
}
