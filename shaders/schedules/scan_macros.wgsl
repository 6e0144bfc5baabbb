// What the schedules of SCAN say about one lane of a unit: what is merged, and what an accumulator comes to.
{% macro lifted(lane) %}{% if of_totals %}unit{% else %}lift(unit{{ lane.part }}, 0u){% endif %}{% endmacro %}
{% macro finished(lane) %}{% if of_totals %}(*state)[{{ lane.state }}]{% else %}finish((*state)[{{ lane.state }}]){% endif %}{% endmacro %}
