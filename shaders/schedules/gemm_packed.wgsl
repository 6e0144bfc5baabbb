// GEMM, packed: as shared, of 8-bit integers, which are multiplied in words of four steps. A workgroup brings {{ depth }} words of each row and
// column into workgroup memory at a time; each of its {{ tile.across }} x {{ tile.down }} invocations computes {{ tile.rows }} rows by {{ tile.units }} units of four columns.
# if summed
// Invocations add up the integers that they bring, as zero points of the other operand take away their multiples.
# endif
{% import "schedules/gemm_macros" as gemm with context %}
{% import "schedules/gemm_slabs" as slabs with context %}
{% set dot = "dot4U8Packed" if is_unsigned else "dot4I8Packed" %}
{% macro add_to_sums(condition="") %}
    # for name, fetch, units in operands
    # if name in summed
    # if condition
        if ({{ condition }}) {
    # endif
    # for first_task in range(0, units * depth, launch.workgroup)
    # set next = "%s_next%d" % (name, loop.index0)
            {{ name }}_part{{ loop.index0 }} += dot_t({% for lane in "xyzw" %}{{ dot }}({{ next }}.{{ lane }}, 0x1010101u){{ ", " if not loop.last }}{% endfor %});
    # endfor
    # if condition
        }
    # endif
    # endif
    # endfor
{% endmacro %}
alias sum_t = vec4<i32>;
alias dot_t = {{ dot_t }};
{{ slabs.slab("a", operands[0][1], "step") }}
{{ slabs.slab("b", operands[1][1], "step") }}
# for name, fetch, units in operands
# if name in summed
var<workgroup> {{ name }}_sums: array<atomic<i32>, {{ 4 * units }}>;
# endif
# endfor
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
{{ gemm.workgroup_tile() }}
{{ slabs.own_tile() }}
    # if padded
    b_padding = u32(b_zero_of(batch, 0u){{ " + 128" if middles["b"] }}) & 0xffu;
    # endif
{{ slabs.tasks("a", operands[0][1], operands[0][2], a_count) }}
{{ slabs.tasks("b", operands[1][1], operands[1][2], b_count) }}
    # for name, fetch, units in operands
    # if name in summed
    for (var own = me; own < {{ 4 * units }}u; own += {{ launch.workgroup }}u) { atomicStore(&{{ name }}_sums[own], 0); }
    # for first_task in range(0, units * depth, launch.workgroup)
    var {{ name }}_part{{ loop.index0 }} = dot_t();
    # endfor
    # endif
    # endfor
{{ gemm.sums("dot", "dot_t") }}
    let stop = last + opaque_zero();
    {
{{ slabs.fetch_half("first") }}
{{ add_to_sums() }}
{{ slabs.keep_half(0) }}
    }
    workgroupBarrier();
    for (var start = first; start < stop; start += {{ 2 * depth }}u) {
        {
{{ slabs.fetch_half("start + %du" % depth) }}
{{ slabs.multiply_words(0, dot) }}
{{ add_to_sums() }}
{{ slabs.keep_half(1) }}
        }
        workgroupBarrier();
        # if whole
        let next = min(start + {{ 2 * depth }}u, stop - {{ depth }}u);
        # else
        let next = start + {{ 2 * depth }}u;
        # endif
{{ slabs.fetch_half("next") }}
{{ slabs.multiply_words(1, dot) }}
{{ add_to_sums("start + %du < stop" % (2 * depth)) }}
{{ slabs.keep_half(0) }}
        workgroupBarrier();
    }
    # for name, fetch, units in operands
    # if name in summed
    # for first_task in range(0, units * depth, launch.workgroup)
    # set number = loop.index0
    # if first_task + launch.workgroup > units * depth
    if (me < {{ units * depth - first_task }}u) {
    # else
    {
    # endif
        # for lane in range(4)
        atomicAdd(&{{ name }}_sums[{{ name }}_own{{ number }} * 4u + {{ lane }}u], {{ "bitcast<i32>(%s_part%d.%s)" % (name, number, "xyzw"[lane]) }});
        # endfor
    }
    # endfor
    # endif
    # endfor
    let column = b_first + my_column;
    let row = a_first * 4u + my_row * {{ tile.rows }}u;
    # if summed
    workgroupBarrier();
    # for unit in range(tile.units)
    # set own = "(column + %du) * 4u" % (unit * tile.across)
    # if "a" in summed
    let b_zero{{ unit }} = sum_t({% for lane in range(4) %}{{ ", " if lane }}b_zero_of(batch, min({{ own }} + {{ lane }}u, {{ b_count - 1 }}u)){% endfor %});
    # endif
    # if "b" in summed
    let b_sum{{ unit }} = sum_t({% for lane in range(4) %}{{ ", " if lane }}atomicLoad(&b_sums[(my_column + {{ unit * tile.across }}u) * 4u + {{ lane }}u]){% endfor %});
    # endif
    # endfor
    # if summed|length == 2
    let count = i32({{ "min(last * 4u, %su)" % steps if tail else "last * 4u" }} - first * 4u);
    # endif
    # for row in range(tile.rows)
    # if "b" in summed
    let a_zero{{ row }} = a_zero_of(batch, min(row + {{ row }}u, {{ a_count - 1 }}u));
    # endif
    # if "a" in summed
    let a_sum{{ row }} = atomicLoad(&a_sums[my_row * {{ tile.rows }}u + {{ row }}u]){{ " - count * a_zero%d" % row if "b" in summed }};
    # endif
    # endfor
    # endif
    # for row in range(tile.rows)
    # for unit in range(tile.units)
    let sum{{ row }}_{{ unit }} = {{ "bitcast<sum_t>(dot%d_%d)" % (row, unit) if is_unsigned else "dot%d_%d" % (row, unit) }}{{ " - a_zero%d * b_sum%d" % (row, unit) if "b" in summed }}{{ " - a_sum%d * b_zero%d" % (row, unit) if "a" in summed }};
    # endfor
    # endfor
{{ gemm.keep_all() }}
}
