// What the schedules of ROWS say about one lane of a unit: its lifted value in a stage, and the results of earlier stages.
{% macro arguments(unit, names, lane) %}{{ unit }}{{ lane.part }}{% for name in names %}, {{ name }}{{ lane.result }}{% endfor %}{% endmacro %}
{% macro lifted(stage, unit, lane) %}{{ stage.name }}_lift({% if stage.prepare %}{{ stage.prepare }}({{ arguments(unit, stage.before, lane) }}){% else %}{{ unit }}{{ lane.part }}{% endif %}, 0u){% endmacro %}
{% macro computed(names, unit) %}output_t({% for lane in lanes %}{{ apply }}({{ arguments(unit, names, lane) }}){% if not loop.last %}, {% endif %}{% endfor %}){% endmacro %}
