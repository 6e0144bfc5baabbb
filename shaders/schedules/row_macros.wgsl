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
