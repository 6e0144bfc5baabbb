// Slabs of a product's operands in workgroup memory, {{ depth }} steps each, in two halves: while invocations multiply what one holds,
// the next {{ depth }} steps are on their way to the other. A row of a slab holds the units of a step; of an operand that is read in
// units along the inner dimension, it holds {{ piece }} steps of each row or column of the operand.
// (Indices that differ by a constant have a dimension of their own: drivers then check them once.)
{% macro own_type(name, along, element) %}{% if name == "a" %}array<array<{{ element }}, {{ tile.rows if along else tile.rows // 4 }}>, {{ tile.down }}>{% else %}array<array<{{ "array<%s, 4>" % element if along else element }}, {{ tile.across }}>, {{ tile.units }}>{% endif %}{% endmacro %}
{% macro slab(name, fetch, digits) %}
# if fetch.steps > 1
var<workgroup> {{ name }}_slab: array<array<array<{{ own_type(name, true, piece_t) }}, {{ 4 // piece }}>, {{ depth // 4 }}>, 2>;
# else
var<workgroup> {{ name }}_slab: array<array<{{ own_type(name, false, name ~ "_unit_t") }}, {{ depth }}>, 2>;
# endif
fn {{ name }}_slab_unit(starts: {{ type_of(name ~ ("_at" if fetch.steps > 1 else "_starts_t")) }}, slab_step: u32, stop: u32) -> {{ name }}_unit_t {
    # if whole
    let step = slab_step;
    # else
    let step = min(slab_step, stop - {{ fetch.steps }}u);
    # endif
    let unit = {{ name }}_{{ "step" if fetch.steps > 1 else "fetch" }}(starts, {{ digits }});
    # if whole
    return unit;
    # else
    return select({{ name }}_unit_t(), unit, slab_step < stop);
    # endif
}
{% endmacro %}
{% macro tasks(name, fetch, units, count) %}
    # for first_task in range(0, units * depth, launch.workgroup)
    # set number = loop.index0
    # set task = "(me + %du)" % first_task if first_task else "me"
    # set task = "min(%s, %du)" % (task, units * depth - 1) if first_task + launch.workgroup > units * depth else task
    # if fetch.steps > 1
    let {{ name }}_row{{ number }} = {{ task }} % {{ depth // 4 }}u;
    let {{ name }}_own{{ number }} = {{ task }} / {{ depth // 4 }}u;
    let {{ name }}_starts{{ number }} = {{ name }}_start(batch, min({{ name }}_first * 4u + {{ name }}_own{{ number }}, {{ count - 1 }}u));
    # else
    # if fetch.inner_fastest
    let {{ name }}_row{{ number }} = {{ task }} % {{ depth }}u;
    let {{ name }}_own{{ number }} = {{ task }} / {{ depth }}u;
    # else
    let {{ name }}_row{{ number }} = {{ task }} / {{ units }}u;
    let {{ name }}_own{{ number }} = {{ task }} % {{ units }}u;
    # endif
    let {{ name }}_starts{{ number }} = {{ name }}_starts(batch, {{ name }}_first + {{ name }}_own{{ number }});
    # endif
    # endfor
{% endmacro %}
{% macro fetch_half(start) %}
    # for name, fetch, units in operands
    # for first_task in range(0, units * depth, launch.workgroup)
    # set number = loop.index0
        let {{ name }}_next{{ number }} = {{ name }}_slab_unit({{ name }}_starts{{ number }}, {{ start }} + {{ name }}_row{{ number }}{{ " * 4u" if fetch.steps > 1 }}, stop);
    # endfor
    # endfor
{% endmacro %}
{% macro place(name, along, own) %}{% if name == "a" %}{% set size = tile.rows if along else tile.rows // 4 %}{% if size > 1 %}[{{ own }} / {{ size }}u][{{ own }} % {{ size }}u]{% else %}[{{ own }}][0]{% endif %}{% elif along %}[{{ own }} / {{ 4 * tile.across }}u][({{ own }} / 4u) % {{ tile.across }}u][{{ own }} % 4u]{% else %}[{{ own }} / {{ tile.across }}u][{{ own }} % {{ tile.across }}u]{% endif %}{% endmacro %}
{% macro keep_half(half) %}
    # for name, fetch, units in operands
    # for first_task in range(0, units * depth, launch.workgroup)
    # set number = loop.index0
    # set row = "%s_slab[%d][%s_row%d]" % (name, half, name, number)
    # set at = place(name, fetch.steps > 1, "%s_own%d" % (name, number))
    # if first_task + launch.workgroup > units * depth
        if (me < {{ units * depth - first_task }}u) {
    # endif
    # if fetch.steps > 1
    # for part in range(0, 4, piece)
        {{ row }}[{{ part // piece }}]{{ at }} = {{ name }}_next{{ number }}.{{ "xyzw"[part:part + piece] }};
    # endfor
    # else
        {{ row }}{{ at }} = {{ name }}_next{{ number }};
    # endif
    # if first_task + launch.workgroup > units * depth
        }
    # endif
    # endfor
    # endfor
{% endmacro %}
{% macro own_unit(name, along, half, step, unit) %}{% set mine = "[my_row]" if name == "a" else "[%d][my_column]" % unit %}{% if along %}{% set row = "%s_slab[%d][%d][%d]%s" % (name, half, step // 4, step % 4 // piece, mine) %}{{ name }}_unit_t({% for lane in range(4) %}{{ row }}[{{ 4 * unit + lane if name == "a" else lane }}].{{ "xyzw"[step % piece] }}{{ ", " if not loop.last }}{% endfor %}){% else %}{{ name }}_slab[{{ half }}][{{ step }}]{{ mine }}{{ "[%d]" % unit if name == "a" }}{% endif %}{% endmacro %}
{% macro multiply_half(half) %}
    # for step in range(depth)
        {
        # for unit in range(tile.rows // 4)
            let a{{ unit }} = {{ own_unit("a", a.fetch.steps > 1, half, step, unit) }};
        # endfor
        # for unit in range(tile.units)
            let b{{ unit }} = {{ own_unit("b", b.fetch.steps > 1, half, step, unit) }};
        # endfor
        # for row in range(tile.rows)
        # for unit in range(tile.units)
            sum{{ row }}_{{ unit }} += {{ "a%d.%s" % (row // 4, "xyzw"[row % 4]) }} * b{{ unit }};
        # endfor
        # endfor
        }
    # endfor
{% endmacro %}
{% macro own_tile() %}
    let a_first = row_tile * {{ operands[0][2] }}u;
    let b_first = column_tile * {{ operands[1][2] }}u;
    let my_column = me % {{ tile.across }}u;
    let my_row = me / {{ tile.across }}u;{% endmacro %}
{% macro multiply_words(half, dot, sums_rows=false) %}
    # for step in range(depth)
        {
        # for unit in range(tile.rows // 4)
            let a{{ unit }} = {{ own_unit("a", false, half, step, unit) }};
        # endfor
        # for unit in range(tile.units)
            let b{{ unit }} = {{ own_unit("b", false, half, step, unit) }};
        # endfor
        # for row in range(tile.rows)
        # set a = "a%d.%s" % (row // 4, "xyzw"[row % 4])
        # if sums_rows
            row_dot{{ row }} += {{ dot }}({{ a }}, 0x1010101u);
        # endif
        # for unit in range(tile.units)
            dot{{ row }}_{{ unit }} += dot_t({% for lane in "xyzw" %}{{ dot }}({{ a }}, b{{ unit }}.{{ lane }}){{ ", " if not loop.last }}{% endfor %});
        # endfor
        # endfor
        }
    # endfor
{% endmacro %}
