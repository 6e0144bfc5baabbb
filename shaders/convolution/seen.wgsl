// What the windows of a tile see of one row of the input, read into variables: 0 beside the input, and where `inside` does not hold.
{% macro read(across, column_at, inside, prefix="") %}
    # for unit in across.units
    var {{ prefix }}seen{{ loop.index0 }} = input_t();
    # endfor
    # if inside
    if ({{ inside|join(" && ") }}) {
    # endif
    # for unit in across.units
    source[{{ column_at }}] = first_column + {{ unit % 2 ** 32 }}u;
    # if across.is_checked(unit)
    if (source[{{ column_at }}] < {{ across.axis.spatial // across.lanes }}u) { {{ prefix }}seen{{ loop.index0 }} = input_load(source); }
    # else
    {{ prefix }}seen{{ loop.index0 }} = input_load(source);
    # endif
    # endfor
    # if inside
    }
    # endif
{% endmacro %}
