// Macros of ROWS for one lane of a unit: its value in a stage, lifted or not, and the results of earlier
// stages; for the results of a stage; and for a whole unit of the output.
{% macro arguments(unit, names, lane) %}{{ unit }}{{ lane.part }}{% for name in names %}, {{ name }}{{ lane.result }}{% endfor %}{% endmacro %}
{% macro value(stage, unit, lane) %}{% if stage.prepare %}{{ stage.prepare }}({{ arguments(unit, stage.before, lane) }}){% else %}{{ unit }}{{ lane.part }}{% endif %}{% endmacro %}
{% macro values(stage, units, lanes) %}array<f32, {{ units|length * lanes|length }}>({% for unit in units %}{% set outer = loop %}{% for lane in lanes %}{{ ", " if not (outer.first and loop.first) }}{{ value(stage, "unit%d" % unit, lane) }}{% endfor %}{% endfor %}){% endmacro %}
{% macro lifted(stage, unit, lane) %}{{ stage.name }}_lift({{ value(stage, unit, lane) }}, 0u){% endmacro %}
{% macro finished(stage, suffix, acc) %}
    let {{ stage.name }}{{ suffix }} = {{ stage.name }}_finish({{ acc }});
    # for name, part in stage.parts
    let {{ name }}{{ suffix }} = {{ stage.name }}{{ suffix }}.{{ part }};
    # endfor
{%- endmacro %}
{% macro result(name) %}{% if across %}{{ result_type }}({% for lane in lanes %}{{ ", " if not loop.first }}{{ name }}{{ lane.result }}{% endfor %}){% else %}{{ result_type }}({{ name }}){% endif %}{% endmacro %}
{% macro computed(place, unit, own="") %}element({{ place }}, {{ unit }}{% for name in names %}, {{ result(name ~ own) }}{% endfor %}{% for name in fixed %}, {{ name }}{{ own }}{% endfor %}{% for name in shared %}, {{ name }}{% endfor %}){% endmacro %}
{% macro stored_statistics() %}
    # for put in statistics
    {{ put }}(at{% for name in names %}, {{ result(name) if across else name }}{% endfor %});
    # endfor
{%- endmacro %}
{% macro numbers(count, lanes) %}array<f32, {{ count * lanes|length }}>({% for number in range(count) %}{% for lane in lanes %}{{ ", " if number or not loop.first }}unit{{ number }}{{ lane.part }}{% endfor %}{% endfor %}){% endmacro %}
{% macro absorbed(stage, count, rows) %}
        # for number in range(count)
        let unit{{ number }} = input_load(unit_at(at, index + {{ number }}u));
        # endfor
        # for own in rows
        {{ stage.name }}_run{{ own[0].result }} = {{ stage.name }}_absorb{{ count * own|length }}({{ stage.name }}_run{{ own[0].result }}, {{ numbers(count, own) }});
        # endfor
{% endmacro %}
{% macro at_once(stage) %}
    # set rows = lanes|batch(1)|list if across else [lanes]
    # set whole = units - units % group
    # for own in rows
    var {{ stage.name }}_run{{ own[0].result }} = {{ stage.name }}_open();
    # endfor
    for (var index = 0u; index < {{ whole }}u; index += {{ group }}u) {
{{ absorbed(stage, group, rows) }}
    }
    # if units > whole
    for (var index = {{ whole }}u; index < {{ units }}u; index++) {
{{ absorbed(stage, 1, rows) }}
    }
    # endif
    # for own in rows
{{ finished(stage, own[0].result, stage.name ~ "_run" ~ own[0].result) }}
    # endfor
{% endmacro %}
{% macro of_row(number, name) %}select(subgroupBroadcast({{ name }}, {{ number }}u), subgroupBroadcast({{ name }}, {{ number + together }}u), first > 0u){% endmacro %}
{% macro stored_together() %}
    let hands = select({{ together }}u, {{ 2 * together }}u, lanes >= {{ 2 * together }}u);
    for (var first = 0u; first < hands; first += {{ together }}u) {
        # for number in range(together)
        let number{{ number }} = {{ of_row(number, "number") }};
        var at{{ number }}: output_at;
        _ = locate(min(number{{ number }}, {{ launch.total - 1 }}u), &at{{ number }});
        # for name in names
        let {{ name }}_{{ number }} = {{ of_row(number, name) }};
        # endfor
        # for name in fixed
        let {{ name }}_{{ number }} = {{ name }}_load(at{{ number }});
        # endfor
        # endfor
        for (var start = 0u; start < {{ units }}u; start += hands) {
            let index = start + lane % hands;
            # if units % (2 * together)
            if (index >= {{ units }}u) { break; }
            # endif
            let along = unit_at(at, index);
            # for name in shared
            let {{ name }} = {{ name }}_load(along);
            # endfor
            # for number in range(together)
            {{ "if (number%d < %su) " % (number, launch.total) if launch.total % (2 * together) }}{
                let place = unit_at(at{{ number }}, index);
                let unit = input_load(place);
                {{ buffer.store }}(output_base() + output_unit(place), output_bits({{ computed("place", "unit", "_%d" % number) }}));
            }
            # endfor
        }
    }
{%- endmacro %}
