// Elements of one row of the input in the windows of a tile, read into variables: 0 outside the input, and if `inside` is false.
// After each unit, it inserts `also`, with the unit's index in place of `#`.
// `name` is the variable, or the lane of one, that holds an element.
{% macro name(patch, element) %}{% set number, lane = patch.place(element) %}seen{{ number }}{{ "." ~ "xyzw"[lane] if patch.lanes > 1 }}{% endmacro %}
{% macro read(across, column_at, inside, prefix="", name="input", also="") %}
    # for unit in across.units
    var {{ prefix }}seen{{ loop.index0 }} = {{ name }}_t();
    # endfor
    # if inside
    if ({{ inside|join(" && ") }}) {
    # endif
    # for unit, numbers in across.reads
    source[{{ column_at }}] = first_column + {{ unit % 2 ** 32 }}u;
    # if across.is_checked(unit)
    if (source[{{ column_at }}] < {{ across.axis.spatial // across.lanes }}u) {
    # else
    {
    # endif
        let read = {{ name }}_load(source);
        # for number in numbers
        {{ prefix }}seen{{ number }} = read{{ "[%d]" % loop.index0 if across.paired }};{{ " " ~ also|replace("#", number) if also }}
        # endfor
    }
    # endfor
    # if inside
    }
    # endif
{% endmacro %}
