// Macros for sums, and calls of a function of two arguments, as trees; # stands for the number of a term.
{% macro sum(terms) %}{% if terms|length == 1 %}{{ terms[0] }}{% else %}({{ sum(terms[:terms|length // 2]) }} + {{ sum(terms[terms|length // 2:]) }}){% endif %}{% endmacro %}
{% macro sum_of(form, count) %}{% set terms = [] %}{% for number in range(count) %}{% set _ = terms.append(form.replace("#", number|string)) %}{% endfor %}{{ sum(terms) }}{% endmacro %}
{% macro calls(function, terms) %}{% if terms|length == 1 %}{{ terms[0] }}{% else %}{{ function }}({{ calls(function, terms[:terms|length // 2]) }}, {{ calls(function, terms[terms|length // 2:]) }}){% endif %}{% endmacro %}
{% macro calls_of(function, form, count) %}{% set terms = [] %}{% for number in range(count) %}{% set _ = terms.append(form.replace("#", number|string)) %}{% endfor %}{{ calls(function, terms) }}{% endmacro %}
