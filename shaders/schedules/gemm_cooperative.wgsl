// GEMM, cooperative: a workgroup brings {{ operands[0][2].depth }} steps of both operands into workgroup memory at a time. Each of its four
// subgroups multiplies matrices of {{ matrices.rows }} x {{ matrices.steps }} by {{ matrices.steps }} x {{ matrices.columns }}, and holds the sums of {{ block }} x {{ block }} of them. At the end the four
// write one matrix of sums each to workgroup memory, whose units all invocations store.
// (Subgroups beyond the fourth repeat the work of another: control flow around matrices must be uniform in the workgroup.)
// If sums are over several dimensions, a slab has steps of the last one: channels of one tap of windows, elements of one block.
{% set element_type = matrices.component %}
{% macro own_places(name, slab, count) %}
    # if slab.gathers
    # for number in range(slab.places(launch.workgroup))
    # set task = "(me + %du)" % (number * launch.workgroup) if number else "me"
    let {{ name }}_start{{ number }} = {{ name }}_start(batch, min({{ name }}_first + {{ task }} % {{ slab.own }}u, {{ count - 1 }}u));
    # endfor
    # endif
{% endmacro %}
{% macro tap_of(name, start) %}{{ name }}_tap({{ start }}{% for _ in tap_digits %}, tap{{ loop.index }}{% endfor %}){% endmacro %}
{% set taps_text %}{% for _ in tap_digits %}tap{{ loop.index }}, {% endfor %}{% endset %}
{% macro own_taps(name, slab) %}
    # if slab.gathers
    # for number in range(slab.places(launch.workgroup))
    let {{ name }}_tap{{ number }} = {{ tap_of(name, "%s_start%d" % (name, number)) }};
    let {{ name }}_inside{{ number }} = {{ name }}_inside({{ name }}_tap{{ number }});
    # endfor
    # endif
{% endmacro %}
{% macro fetch(name, operand, slab, count, is_partial) %}
        # set many = " * 4u" if slab.width > 1 else ""
        # set type = "vec4<%s>" % element_type if slab.width > 1 else element_type
        # for first_task in range(0, slab.tasks, launch.workgroup)
        {% if first_task + launch.workgroup > slab.tasks %}if (me < {{ slab.tasks - first_task }}u) {% endif %}{
            let task = me{{ " + %du" % first_task if first_task }};
            # if slab.gathers
            let own = task % {{ slab.own }}u;
            let step = task / {{ slab.own }}u * 4u;
            # elif slab.inner_fastest
            let own = task / {{ slab.depth // slab.width }}u;
            let step = task % {{ slab.depth // slab.width }}u{{ many }};
            # else
            let own = task % {{ slab.own // slab.width }}u{{ many }};
            let step = task / {{ slab.own // slab.width }}u;
            # endif
            # set last_own = count - (1 if slab.inner_fastest else slab.width)
            # set last_step = inner - (slab.width if slab.inner_fastest else 1)
            # set index = "%s_first + own" % name
            # set index = "min(%s, %su)" % (index, last_own) if is_partial else index
            # if slab.gathers
            # set place = loop.index0 % slab.places(launch.workgroup)
            # for lane in range(4)
            let channel{{ lane }} = start + step{{ " + %du" % lane if lane }};
            # set position = "min(channel%d, %su)" % (lane, last_step) if is_partial_step else "channel%d" % lane
            # set inside = "%s_inside%d" % (name, place) ~ (" && channel%d < %su" % (lane, inner) if is_partial_step else "")
            let element{{ lane }} = select({{ element_type }}(), {{ element_type }}({{ name }}_channel({{ name }}_tap{{ place }}, {{ position }})), {{ inside }});
            # endfor
            let unit = vec4<{{ element_type }}>(element0, element1, element2, element3);
            # else
            # set position = "min(start + step, %su)" % last_step if is_partial_step else "start + step"
            # if operand.windows
            let tap_place = {{ tap_of(name, "%s_start(batch, %s)" % (name, index)) }};
            # set element = "%s_channel(tap_place, %s)" % (name, position)
            # else
            let unit_start = {{ name }}_start(batch, {{ "(%s) / 4u" % index if slab.width > 1 and not slab.inner_fastest else index }});
            # set outer = "tap * %su + " % inner if tap_digits and operand.inner == 1 else taps_text if operand.inner > 1 else ""
            # set element = "%s_step(unit_start, %s%s)" % (name, outer, position)
            # endif
            # set conditions = (["%s_inside(tap_place)" % name] if operand.windows else []) + (["start + step < %su" % inner] if is_partial_step else [])
            # if conditions
            let unit = select({{ type }}(), {{ type }}({{ element }}), {{ conditions | join(" && ") }});
            # else
            let unit = {{ type }}({{ element }});
            # endif
            # endif
            let matrix = {{ "own / %du * %du" % (slab.own_side, slab.across) }} + step / {{ slab.step_side }}u;
            # if slab.steps_adjacent
            let at = own % {{ slab.own_side }}u * {{ slab.stride }}u + step % {{ slab.step_side }}u;
            # else
            let at = step % {{ slab.step_side }}u * {{ slab.stride }}u + own % {{ slab.own_side }}u;
            # endif
            # if slab.width > 1
            # for part in "xyzw"
            {{ name }}_slab[matrix][at + {{ loop.index0 * (1 if (slab.inner_fastest or slab.gathers) == slab.steps_adjacent else slab.stride) }}u] = unit.{{ part }};
            # endfor
            # else
            {{ name }}_slab[matrix][at] = unit;
            # endif
        }
        # endfor
{% endmacro %}
{% macro load(name, slab, number) %}
{% set place = "%s_slab[%s_mine + %du + step]" % (name, name, number * slab.across) %}
{{ matrix.load(name, place, "0u", slab.stride, steps_adjacent=slab.steps_adjacent) }}{% endmacro %}
alias sum_t = vec4<f32>;
# for name, _, slab, _, _ in operands
var<workgroup> {{ name }}_slab: array<array<{{ element_type }}, {{ slab.matrix_size }}>, {{ slab.matrices }}>;
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
    let b_first = {{ mod("number", across) }} * {{ operands[1][2].own }}u;
    let a_first = {{ mod(div("number", across), down) }} * {{ operands[0][2].own }}u;
    # if parts > 1
    let whole = {{ div("number", across * down) }};
    let batch = {{ mod("whole", batches) }};
    let part = {{ div("whole", batches) }};
    # else
    let batch = {{ div("number", across * down) }};
    # endif
    let quarter = subgroup & {{ subgroups - 1 }}u;
    let a_mine = quarter / {{ side }}u * {{ block * operands[0][2].across }}u;
    let b_mine = (quarter & {{ side - 1 }}u) * {{ block * operands[1][2].across }}u;
    # for row in range(block)
    # for column in range(block)
    var sum{{ row }}_{{ column }} = {{ matrix.zero() }};
    # endfor
    # endfor
    # if tap_digits
    # for name, _, slab, count, _ in operands
{{ own_places(name, slab, count) }}
    # endfor
    # if parts > 1
    for (var tap = part * {{ share }}u; tap < min({{ taps }}u, (part + 1u) * {{ share }}u); tap++) {
    # else
    for (var tap = 0u; tap < {{ taps }}u; tap++) {
    # endif
    # for digit in tap_digits
    let tap{{ loop.index }} = {{ digit }};
    # endfor
    # for name, _, slab, _, _ in operands
{{ own_taps(name, slab) }}
    # endfor
    # endif
    # if parts > 1 and not tap_digits
    for (var start = part * {{ share }}u; start < min({{ inner }}u, (part + 1u) * {{ share }}u); start += {{ operands[0][2].depth }}u) {
    # else
    for (var start = 0u; start < {{ inner }}u; start += {{ operands[0][2].depth }}u) {
    # endif
        # for name, operand, slab, count, is_partial in operands
{{ fetch(name, operand, slab, count, is_partial) }}
        # endfor
        workgroupBarrier();
        for (var step = 0u; step < {{ operands[0][2].depth // matrices.steps }}u + opaque_zero(); step++) {
            # for name, _, slab, _, _ in operands
            # for number in range(block)
            let {{ name }}{{ number }} = {{ load(name, slab, number) }};
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
    # if tap_digits
    }
    # endif
    # for down in range(block)
    # for right in range(block)
    {{ matrix.store("sum%d_%d" % (down, right), "sums", "quarter * %du" % matrix_size) }};
    workgroupBarrier();
    for (var unit = me; unit < {{ subgroups * matrix_size // 4 }}u; unit += {{ launch.workgroup }}u) {
        let owner = unit / {{ matrix_size // 4 }}u;
        let row = owner / {{ side }}u * {{ block * matrices.rows }}u + unit % {{ matrix_size // 4 }}u / {{ matrices.columns // 4 }}u;
        let column = owner % {{ side }}u * {{ block * matrices.columns }}u + unit % {{ matrices.columns // 4 }}u * 4u;
        let own_sums = sum_t({% for lane in range(4) %}sums[unit * 4u{{ " + %du" % lane if lane }}]{{ ", " if not loop.last }}{% endfor %});
        keep({{ "part" if parts > 1 else "0u" }}, batch, a_first + row + {{ down * matrices.rows }}u, (b_first + column + {{ right * matrices.columns }}u) / 4u, own_sums);
    }
    workgroupBarrier();
    # endfor
    # endfor
}
