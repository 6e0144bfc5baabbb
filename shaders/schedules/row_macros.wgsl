// What the schedules of ROWS say about one lane of a unit: its value in a stage, lifted or not, and the results of earlier
// stages; about the results of a stage; and about a whole unit of the output.
{% macro arguments(unit, names, lane) %}{{ unit }}{{ lane.part }}{% for name in names %}, {{ name }}{{ lane.result }}{% endfor %}{% endmacro %}
{% macro value(stage, unit, lane) %}{% if stage.prepare %}{{ stage.prepare }}({{ arguments(unit, stage.before, lane) }}){% else %}{{ unit }}{{ lane.part }}{% endif %}{% endmacro %}
{% macro lifted(stage, unit, lane) %}{{ stage.name }}_lift({{ value(stage, unit, lane) }}, 0u){% endmacro %}
{% macro finished(stage, suffix, acc) %}
    let {{ stage.name }}{{ suffix }} = {{ stage.name }}_finish({{ acc }});
    # for name, part in stage.parts
    let {{ name }}{{ suffix }} = {{ stage.name }}{{ suffix }}.{{ part }};
    # endfor
{%- endmacro %}
{% macro result(name) %}{% if across %}{{ result_type }}({% for lane in lanes %}{{ ", " if not loop.first }}{{ name }}{{ lane.result }}{% endfor %}){% else %}{{ result_type }}({{ name }}){% endif %}{% endmacro %}
{% macro computed(place, unit) %}element({{ place }}, {{ unit }}{% for name in names %}, {{ result(name) }}{% endfor %}{% for name in fixed %}, {{ name }}{% endfor %}){% endmacro %}
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
