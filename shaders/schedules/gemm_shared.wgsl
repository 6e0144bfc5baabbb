// GEMM, shared: a workgroup brings {{ depth }} steps of both operands into workgroup memory at a time; each of its {{ tile.across }} x {{ tile.down }}
// invocations computes {{ tile.rows }} rows by {{ tile.units }} units of four columns.
// (Where the steps end is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/gemm_macros" as gemm with context %}
{% import "schedules/gemm_slabs" as slabs with context %}
alias sum_t = {{ sum_t }};
{{ slabs.slab("a", a.fetch, a_digits) }}
{{ slabs.slab("b", b.fetch, b_digits) }}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
{{ gemm.workgroup_tile() }}
{{ slabs.own_tile() }}
{{ slabs.tasks("a", a.fetch, operands[0][2], a_count) }}
{{ slabs.tasks("b", b.fetch, operands[1][2], b_count) }}
    # if chunk or in_float16
{{ gemm.sums("total") }}
    # endif
    # if chunk
    for (var begin = first * {{ inner_rest }}u; begin < last * {{ inner_rest }}u; begin += {{ chunk * inner_rest }}u) {
    let stop = min(begin + {{ chunk * inner_rest }}u, last * {{ inner_rest }}u) + opaque_zero();
    # else
    let begin = first * {{ inner_rest }}u;
    let stop = last * {{ inner_rest }}u + opaque_zero();
    # endif
    # if not in_float16
{{ gemm.sums("sum") }}
    # endif
    {
{{ slabs.fetch_half("begin") }}
{{ slabs.keep_half(0) }}
    }
    workgroupBarrier();
    for (var start = begin; start < stop; start += {{ 2 * depth }}u) {
        # if in_float16
{{ gemm.sums("sum", product_t) }}
        # endif
        {
{{ slabs.fetch_half("start + %du" % depth) }}
{{ slabs.multiply_half(0) }}
{{ slabs.keep_half(1) }}
        }
        workgroupBarrier();
        # if whole
        let next = min(start + {{ 2 * depth }}u, stop - {{ depth }}u);
        # else
        let next = start + {{ 2 * depth }}u;
        # endif
{{ slabs.fetch_half("next") }}
{{ slabs.multiply_half(1) }}
{{ slabs.keep_half(0) }}
        workgroupBarrier();
        # if in_float16
{{ gemm.add_to_totals() }}
        # endif
    }
    # if chunk
{{ gemm.add_to_totals() }}
    }
    # endif
    let column = b_first + my_column;
    let row = a_first * 4u + my_row * {{ tile.rows }}u;
{{ gemm.keep_all() }}
}
