// GEMM, cooperative, of 8-bit integers: as cooperative, with words of four steps, which are adjacent in both slabs.
# if summed
// Invocations add up the integers that they bring, as zero points of the other operand take away their multiples.
# endif
{% macro own_tasks() %}
    # for name, inner_fastest, tile, count in operands
    # for first_task in range(0, tile // 4 * words_per_slab, launch.workgroup)
    # set task = "(me + %du)" % first_task if first_task else "me"
    # set task = "min(%s, %du)" % (task, tile // 4 * words_per_slab - 1) if first_task + launch.workgroup > tile // 4 * words_per_slab else task
    # if inner_fastest
    let {{ name }}_word{{ loop.index0 }} = {{ task }} % {{ words_per_slab }}u;
    let {{ name }}_own{{ loop.index0 }} = {{ task }} / {{ words_per_slab }}u;
    # else
    let {{ name }}_word{{ loop.index0 }} = {{ task }} / {{ tile // 4 }}u;
    let {{ name }}_own{{ loop.index0 }} = {{ task }} % {{ tile // 4 }}u;
    # endif
    let {{ name }}_starts{{ loop.index0 }} = {{ name }}_starts(batch, {{ name }}_first / 4u + {{ name }}_own{{ loop.index0 }});
    # if name in summed
    var {{ name }}_part{{ loop.index0 }} = sum_t();
    # endif
    # endfor
    # endfor
{% endmacro %}
{% macro load(name, size, number) %}{{ matrix.load(name, name ~ "_slab", "%s_mine * %du + %du + step * %du" % (name, 4 * stride, 4 * number * size * stride, matrices.steps), 4 * stride, steps_adjacent=true) }}{% endmacro %}
alias sum_t = vec4<i32>;
# set matrix_size = matrices.rows * matrices.columns
# for name, _, tile, _ in operands
var<workgroup> {{ name }}_slab: array<i32, {{ tile * stride }}>;
# if name in summed
var<workgroup> {{ name }}_sums: array<atomic<i32>, {{ tile }}>;
# endif
# endfor
var<workgroup> sums: array<i32, {{ subgroups * matrix_size }}>;
@compute @workgroup_size({{ launch.workgroup }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) me: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let b_first = {{ mod("number", across) }} * {{ operands[1][2] }}u;
    let a_first = {{ mod(div("number", across), down) }} * {{ operands[0][2] }}u;
    # if parts > 1
    let whole = {{ div("number", across * down) }};
    let batch = {{ mod("whole", batches) }};
    let part = {{ div("whole", batches) }};
    let first = part * {{ share }}u;
    let last = min({{ inner }}u, first + {{ share }}u);
    # else
    let batch = {{ div("number", across * down) }};
    let first = 0u;
    let last = {{ inner }}u;
    # endif
    let quarter = subgroup & {{ subgroups - 1 }}u;
    let a_mine = quarter / {{ side }}u * {{ block * matrices.rows }}u;
    let b_mine = (quarter & {{ side - 1 }}u) * {{ block * matrices.columns }}u;
    # if padded
    b_padding = u32(b_zero_of(batch, 0u){{ " + 128" if middles["b"] }}) & 0xffu;
    # endif
    # for row in range(block)
    # for column in range(block)
    var sum{{ row }}_{{ column }} = {{ matrix.zero() }};
    # endfor
    # endfor
{{ own_tasks() }}
    # for name, _, tile, _ in operands
    # if name in summed
    for (var own = me; own < {{ tile }}u; own += {{ launch.workgroup }}u) { atomicStore(&{{ name }}_sums[own], 0); }
    # endif
    # endfor
    for (var start = first; start < last; start += {{ words_per_slab }}u) {
        # for name, _, tile, _ in operands
        # for first_task in range(0, tile // 4 * words_per_slab, launch.workgroup)
        # set number = loop.index0
        {% if first_task + launch.workgroup > tile // 4 * words_per_slab %}if (me < {{ tile // 4 * words_per_slab - first_task }}u) {% endif %}{
            let word = start + {{ name }}_word{{ number }};
            let words = bitcast<sum_t>(select({{ name }}_unit_t(), {{ name }}_fetch({{ name }}_starts{{ number }}, min(word, last - 1u)), word < last));
            let at = {{ name }}_own{{ number }} * {{ 4 * stride }}u + {{ name }}_word{{ number }};
            # for lane in range(4)
            {{ name }}_slab[at + {{ lane * stride }}u] = words[{{ lane }}];
            # endfor
            # if name in summed
            {{ name }}_part{{ number }} += sum_t({% for lane in range(4) %}{{ ", " if lane }}dot4I8Packed(u32(words[{{ lane }}]), 0x1010101u){% endfor %});
            # endif
        }
        # endfor
        # endfor
        workgroupBarrier();
        for (var step = 0u; step < {{ 4 * words_per_slab // matrices.steps }}u + opaque_zero(); step++) {
            # for name, _, _, _ in operands
            # for number in range(block)
            let {{ name }}{{ number }} = {{ load(name, matrices.rows if name == "a" else matrices.columns, number) }};
            # endfor
            # endfor
            # for row in range(block)
            # for column in range(block)
            sum{{ row }}_{{ column }} = {{ matrix.multiply_add("a%d" % row, "b%d" % column, "sum%d_%d" % (row, column)) }};
            # endfor
            # endfor
        }
        workgroupBarrier();
    }
    # for name, _, tile, _ in operands
    # if name in summed
    # for first_task in range(0, tile // 4 * words_per_slab, launch.workgroup)
    # set number = loop.index0
    {% if first_task + launch.workgroup > tile // 4 * words_per_slab %}if (me < {{ tile // 4 * words_per_slab - first_task }}u) {% endif %}{
        # for lane in range(4)
        atomicAdd(&{{ name }}_sums[{{ name }}_own{{ number }} * 4u + {{ lane }}u], {{ name }}_part{{ number }}[{{ lane }}]);
        # endfor
    }
    # endfor
    # endif
    # endfor
    # if summed|length == 2
    let count = i32({{ "min(last * 4u, %su)" % steps if tail else "last * 4u" }} - first * 4u);
    # endif
    # for down in range(block)
    # for right in range(block)
    {{ matrix.store("sum%d_%d" % (down, right), "sums", "quarter * %du" % matrix_size) }};
    workgroupBarrier();
    for (var unit = me; unit < {{ subgroups * matrix_size // 4 }}u; unit += {{ launch.workgroup }}u) {
        let owner = unit / {{ matrix_size // 4 }}u;
        let row = owner / {{ side }}u * {{ block * matrices.rows }}u + unit % {{ matrix_size // 4 }}u / {{ matrices.columns // 4 }}u + {{ down * matrices.rows }}u;
        let column = owner % {{ side }}u * {{ block * matrices.columns }}u + unit % {{ matrices.columns // 4 }}u * 4u + {{ right * matrices.columns }}u;
        var own_sums = sum_t({% for lane in range(4) %}sums[unit * 4u{{ " + %du" % lane if lane }}]{{ ", " if not loop.last }}{% endfor %});
        # if "b" in summed
        let a_zero = a_zero_of(batch, min(a_first + row, {{ rows - 1 }}u));
        own_sums -= a_zero * sum_t({% for lane in range(4) %}{{ ", " if lane }}atomicLoad(&b_sums[column + {{ lane }}u]){% endfor %});
        # endif
        # if "a" in summed
        let a_sum = atomicLoad(&a_sums[row]){{ " - count * a_zero" if "b" in summed }};
        own_sums -= a_sum * sum_t({% for lane in range(4) %}{{ ", " if lane }}b_zero_of(batch, min(b_first + column + {{ lane }}u, {{ columns - 1 }}u)){% endfor %});
        # endif
        keep({{ "part" if parts > 1 else "0u" }}, batch, a_first + row, (b_first + column) / 4u, own_sums);
    }
    workgroupBarrier();
    # endfor
    # endfor
}
