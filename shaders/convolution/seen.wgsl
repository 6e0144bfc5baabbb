// What the windows of a tile see of one row of the input, read into variables: 0 beside the input, and where `inside` does not hold.
{% macro read(across, column_at, inside, prefix="", name="input") %}
    # for unit in across.units
    var {{ prefix }}seen{{ loop.index0 }} = {{ name }}_t();
    # endfor
    # if inside
    if ({{ inside|join(" && ") }}) {
    # endif
    # for unit in across.units
    source[{{ column_at }}] = first_column + {{ unit % 2 ** 32 }}u;
    # if across.is_checked(unit)
    if (source[{{ column_at }}] < {{ across.axis.spatial // across.lanes }}u) { {{ prefix }}seen{{ loop.index0 }} = {{ name }}_load(source); }
    # else
    {{ prefix }}seen{{ loop.index0 }} = {{ name }}_load(source);
    # endif
    # endfor
    # if inside
    }
    # endif
{% endmacro %}
