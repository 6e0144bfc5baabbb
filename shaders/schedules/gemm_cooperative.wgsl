// GEMM, cooperative: a workgroup brings {{ operands[0][1].depth }} steps of both operands into workgroup memory at a time, as float16. Each of its four
// subgroups multiplies matrices of {{ matrices.rows }} x {{ matrices.steps }} by {{ matrices.steps }} x {{ matrices.columns }}, and holds the sums of {{ block }} x {{ block }} of them. At the end the four
// write one matrix of sums each to workgroup memory, whose units all invocations store.
// (Subgroups beyond the fourth repeat the work of another: control flow around matrices must be uniform in the workgroup.)
{% macro fetch(name, slab, count, is_partial) %}
        # set many = " * 4u" if slab.width > 1 else ""
        # set type = "vec4<f16>" if slab.width > 1 else "f16"
        # for first_task in range(0, slab.tasks, launch.workgroup)
        {% if first_task + launch.workgroup > slab.tasks %}if (me < {{ slab.tasks - first_task }}u) {% endif %}{
            let task = me{{ " + %du" % first_task if first_task }};
            # if slab.inner_fastest
            let own = task / {{ slab.depth // slab.width }}u;
            let step = task % {{ slab.depth // slab.width }}u{{ many }};
            # set last_own, last_step = count - 1, inner - slab.width
            # else
            let own = task % {{ slab.own // slab.width }}u{{ many }};
            let step = task / {{ slab.own // slab.width }}u;
            # set last_own, last_step = count - slab.width, inner - 1
            # endif
            # set index = "%s_first + own" % name
            # set index = "min(%s, %su)" % (index, last_own) if is_partial else index
            let unit_start = {{ name }}_start(batch, {{ "(%s) / 4u" % index if slab.width > 1 and not slab.inner_fastest else index }});
            # if is_partial_step
            let position = min(start + step, {{ last_step }}u);
            let unit = select({{ type }}(), {{ type }}({{ name }}_step(unit_start, position)), start + step < {{ inner }}u);
            # else
            let unit = {{ type }}({{ name }}_step(unit_start, start + step));
            # endif
            # if slab.steps_adjacent
            let at = own * {{ slab.stride }}u + step;
            # else
            let at = step * {{ slab.stride }}u + own;
            # endif
            # if slab.width > 1
            # for part in "xyzw"
            {{ name }}_slab[at + {{ loop.index0 * (1 if slab.inner_fastest == slab.steps_adjacent else slab.stride) }}u] = unit.{{ part }};
            # endfor
            # else
            {{ name }}_slab[at] = unit;
            # endif
        }
        # endfor
{% endmacro %}
{% macro load(name, slab, size, number, step) %}
{% if slab.steps_adjacent %}{% set at = "%s_mine * %du + %du" % (name, slab.stride, number * size * slab.stride + step) %}{% else %}{% set at = "%s_mine + %du" % (name, number * size + step * slab.stride) %}{% endif %}
{{ matrix.load(name, name ~ "_slab", at, slab.stride, steps_adjacent=slab.steps_adjacent) }}{% endmacro %}
alias sum_t = vec4<f32>;
# for name, slab, _, _ in operands
var<workgroup> {{ name }}_slab: array<f16, {{ slab.size }}>;
# endfor
# set matrix_size = matrices.rows * matrices.columns
var<workgroup> sums: array<f32, {{ subgroups * matrix_size }}>;
@compute @workgroup_size({{ launch.workgroup }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) me: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let b_first = {{ mod("number", across) }} * {{ operands[1][1].own }}u;
    let a_first = {{ mod(div("number", across), down) }} * {{ operands[0][1].own }}u;
    let batch = {{ div("number", across * down) }};
    let quarter = subgroup % {{ subgroups }}u;
    let a_mine = quarter / {{ side }}u * {{ block * matrices.rows }}u;
    let b_mine = quarter % {{ side }}u * {{ block * matrices.columns }}u;
    # for row in range(block)
    # for column in range(block)
    var sum{{ row }}_{{ column }} = {{ matrix.zero() }};
    # endfor
    # endfor
    for (var start = 0u; start < {{ inner }}u; start += {{ operands[0][1].depth }}u) {
        # for name, slab, count, is_partial in operands
{{ fetch(name, slab, count, is_partial) }}
        # endfor
        workgroupBarrier();
        # for step in range(0, operands[0][1].depth, matrices.steps)
        {
            # for name, slab, _, _ in operands
            # for number in range(block)
            let {{ name }}{{ number }} = {{ load(name, slab, matrices.rows if name == "a" else matrices.columns, number, step) }};
            # endfor
            # endfor
            # for row in range(block)
            # for column in range(block)
            sum{{ row }}_{{ column }} = {{ matrix.multiply_add("a%d" % row, "b%d" % column, "sum%d_%d" % (row, column)) }};
            # endfor
            # endfor
        }
        # endfor
        workgroupBarrier();
    }
    # for down in range(block)
    # for right in range(block)
    {{ matrix.store("sum%d_%d" % (down, right), "sums", "quarter * %du" % matrix_size) }};
    workgroupBarrier();
    for (var unit = me; unit < {{ subgroups * matrix_size // 4 }}u; unit += {{ launch.workgroup }}u) {
        let owner = unit / {{ matrix_size // 4 }}u;
        let row = owner / {{ side }}u * {{ block * matrices.rows }}u + unit % {{ matrix_size // 4 }}u / {{ matrices.columns // 4 }}u;
        let column = owner % {{ side }}u * {{ block * matrices.columns }}u + unit % {{ matrices.columns // 4 }}u * 4u;
        let own_sums = sum_t({% for lane in range(4) %}sums[unit * 4u{{ " + %du" % lane if lane }}]{{ ", " if not loop.last }}{% endfor %});
        keep(0u, batch, a_first + row + {{ down * matrices.rows }}u, (b_first + column + {{ right * matrices.columns }}u) / 4u, own_sums);
    }
    workgroupBarrier();
    # endfor
    # endfor
}
