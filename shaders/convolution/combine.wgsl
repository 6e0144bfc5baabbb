// A row of a transform applied to numbers in variables: the sum of its terms.
{% macro combine(row, prefix, suffix="") %}{% for place, factor in row %}{{ " + " if not loop.first else "" }}{{ "-" if factor == -1 else "" if factor == 1 else factor ~ " * " }}{{ prefix }}{{ place }}{{ suffix }}{% endfor %}{% endmacro %}
{% macro both_ways(rows, columns) %}
    # for row in rows
    # set down = loop.index0
    # for column in range(columns)
    let half{{ down }}_{{ column }} = {{ combine(row, "given", "_" ~ column) }};
    # endfor
    # endfor
{% endmacro %}
// The same in a loop: what it begins with, and what a turn adds. Turn n has the numbers of row n, given0, given1 and so on.
{% macro no_rows(rows, columns, kind) %}
    # for row in rows
    # set down = loop.index0
    # for column in range(columns)
    var half{{ down }}_{{ column }} = {{ kind }}();
    # endfor
    # endfor
{% endmacro %}
{% macro factor(row) %}{% set chosen = namespace(text="0.0") %}{% for place, factor in row %}{% set chosen.text = "select(%s, %s, turn == %du)" % (chosen.text, factor, place) %}{% endfor %}{{ chosen.text }}{% endmacro %}
{% macro add_row(rows, columns) %}
    # for row in rows
    # set down = loop.index0
    let factor{{ down }} = {{ factor(row) }};
    # for column in range(columns)
    half{{ down }}_{{ column }} += factor{{ down }} * given{{ column }};
    # endfor
    # endfor
{% endmacro %}
{% macro all(rows) %}
    let transformed = array<tile_s, {{ rows|length ** 2 }}>(
    # for down in range(rows|length)
    # for row in rows
        {{ combine(row, "half" ~ down ~ "_") }},
    # endfor
    # endfor
    );
{% endmacro %}
{% macro in_lanes(rows, kind="let") %}
    # for down in range(rows|length)
    # for row in rows
    {{ kind }} number{{ down }}_{{ loop.index0 }} = {{ combine(row, "half" ~ down ~ "_") }};
    # endfor
    # endfor
{% endmacro %}
{% macro all_lanes(rows) %}
{{ in_lanes(rows) }}
    let transformed = array<tile_s, {{ 4 * rows|length ** 2 }}>(
    # for down in range(rows|length)
    # for across in range(rows|length)
        {% for lane in "xyzw" %}number{{ down }}_{{ across }}.{{ lane }},{{ " " if not loop.last }}{% endfor +%}
    # endfor
    # endfor
    );
{% endmacro %}
{% macro all_in_order(rows) %}
    return array<tile_s, {{ rows|length ** 2 }}>({% for down in range(rows|length) %}{% for across in range(rows|length) %}number{{ down }}_{{ across }}{% if not loop.last %}, {% endif %}{% endfor %}{% if not loop.last %}, {% endif %}{% endfor %});
{% endmacro %}
{% macro all_beside(rows) %}
    return array<tile_s, {{ 4 * rows|length ** 2 }}>(
    # for down in range(rows|length)
    # for lane in "xyzw"
        {% for across in range(rows|length) %}number{{ down }}_{{ across }}.{{ lane }},{{ " " if not loop.last }}{% endfor +%}
    # endfor
    # endfor
    );
{% endmacro %}
