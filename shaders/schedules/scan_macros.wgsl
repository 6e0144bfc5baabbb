// Macros of SCAN for one lane of a unit: the merged value, and the result of an accumulator.
{% macro lifted(lane) %}{% if of_totals %}unit{% else %}lift(unit{{ lane.part }}, 0u){% endif %}{% endmacro %}
{% macro finished(lane) %}{% if of_totals %}(*state)[{{ lane.state }}]{% else %}finish((*state)[{{ lane.state }}]){% endif %}{% endmacro %}
