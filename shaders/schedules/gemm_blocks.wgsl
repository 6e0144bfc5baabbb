// GEMM, packed: as shared, of integers in blocks that share scales. A workgroup brings {{ depth }} words of four steps of each row and column
// into workgroup memory at a time; each of its {{ tile.across }} x {{ tile.down }} invocations computes {{ tile.rows }} rows by {{ tile.units }} units of four columns.
// Blocks are of {{ block }} words.
{% import "schedules/gemm_macros" as gemm with context %}
{% import "schedules/gemm_slabs" as slabs with context %}
{% macro scales(word) %}
        let block = min(({{ word }}) / {{ block }}u, {{ blocks - 1 }}u);
        # for unit in range(tile.units)
        # for lane in range(4)
        let column{{ unit }}_{{ lane }} = min((column + {{ unit * tile.across }}u) * 4u + {{ lane }}u, {{ b_count - 1 }}u);
        # endfor
        let scale{{ unit }} = sum_t({% for lane in range(4) %}{{ ", " if lane }}scale_read(batch, column{{ unit }}_{{ lane }}, block, 0u){% endfor %});
        # if has_zero
        # if zero_known is none
        let zero{{ unit }} = sum_t({% for lane in range(4) %}{{ ", " if lane }}f32(zero_read(batch, column{{ unit }}_{{ lane }}, block, 0u)){% endfor %}) - {{ middle }};
        # else
        let zero{{ unit }} = sum_t({{ zero_known }});
        # endif
        # endif
        # endfor
        # for row in range(tile.rows)
        let row_scale{{ row }} = a_scale_read(batch, min(row + {{ row }}u, {{ a_count - 1 }}u), block, 0u);
        # endfor
{% endmacro %}
{% macro add_block() %}
        # for row in range(tile.rows)
        # for unit in range(tile.units)
        # set sum = "sum_t(dot%d_%d)" % (row, unit)
        sum{{ row }}_{{ unit }} = fma({{ "%s - zero%d * f32(row_dot%d)" % (sum, unit, row) if has_zero else sum }}, scale{{ unit }} * row_scale{{ row }}, sum{{ row }}_{{ unit }});
        dot{{ row }}_{{ unit }} = dot_t();
        # endfor
        # if has_zero
        row_dot{{ row }} = 0;
        # endif
        # endfor
{% endmacro %}
alias sum_t = vec4<f32>;
alias dot_t = vec4<i32>;
{{ slabs.slab("a", operands[0][1], "step") }}
{{ slabs.slab("b", operands[1][1], "step") }}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
{{ gemm.workgroup_tile() }}
{{ slabs.own_tile() }}
    let column = b_first + my_column;
    let row = a_first * 4u + my_row * {{ tile.rows }}u;
{{ slabs.tasks("a", operands[0][1], operands[0][2], a_count) }}
{{ slabs.tasks("b", operands[1][1], operands[1][2], b_count) }}
{{ gemm.sums("sum") }}
{{ gemm.sums("dot", "dot_t") }}
    # if has_zero
    # for row in range(tile.rows)
    var row_dot{{ row }} = 0;
    # endfor
    # endif
    let stop = last + opaque_zero();
    {
{{ slabs.fetch_half("first") }}
{{ slabs.keep_half(0) }}
    }
    workgroupBarrier();
    for (var start = first; start < stop; start += {{ 2 * depth }}u) {
        {
{{ slabs.fetch_half("start + %du" % depth) }}
        # if block == depth
{{ scales("start") }}
        # endif
{{ slabs.multiply_words(0, "dot4I8Packed", has_zero) }}
        # if block == depth
{{ add_block() }}
        # endif
{{ slabs.keep_half(1) }}
        }
        workgroupBarrier();
        # if whole
        let next = min(start + {{ 2 * depth }}u, stop - {{ depth }}u);
        # else
        let next = start + {{ 2 * depth }}u;
        # endif
{{ slabs.fetch_half("next") }}
        # if block == depth
        {
{{ scales("start + %du" % depth) }}
{{ slabs.multiply_words(1, "dot4I8Packed", has_zero) }}
{{ add_block() }}
        }
        # else
{{ slabs.multiply_words(1, "dot4I8Packed", has_zero) }}
        if ((start + {{ 2 * depth }}u) % {{ block }}u == 0u || start + {{ 2 * depth }}u >= stop) {
{{ scales("start") }}
{{ add_block() }}
        }
        # endif
{{ slabs.keep_half(0) }}
        workgroupBarrier();
    }
{{ gemm.keep_all() }}
}
