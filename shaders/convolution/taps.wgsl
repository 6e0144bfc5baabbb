// The filter of a depth-wise convolution in registers, in units or tap by tap: macros that read a row of it, and that add its products with a row of
// the input to the sums of a row of positions.
{% import "convolution/seen" as seen with context %}
{% macro tap(row, place) %}{% if in_units %}{% set number = row * across.axis.size + place %}taps{{ number // 4 }}.{{ "xyzw"[number % 4] }}{% else %}tap{{ row }}_{{ place }}{% endif %}{% endmacro %}
{% macro first_column() %}
    let first_column = at[{{ column_at }}]{% if across.axis.stride != across.lanes %} * {{ across.axis.stride }}u{% if across.lanes > 1 %} / {{ across.lanes }}u{% endif %}{% endif %};{% endmacro %}
{% macro load_taps(row) %}
    # if not in_units
    # for place in range(across.axis.size)
    taps_place[{{ column_at }}] = {{ place }}u;
    let tap{{ row }}_{{ place }} = taps_load(taps_place);
    # endfor
    # endif
{% endmacro %}
{% macro add(sum, tap_row) %}
    # for column in range(across.tile)
    # for place in range(across.axis.size)
    {{ sum }}_{{ column }} += {{ seen.name(across, across.element(column, place)) }} * {{ tap(tap_row, place) }};
    # endfor
    # endfor
{% endmacro %}
