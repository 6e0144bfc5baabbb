// What the windows of a tile see of one row of the input, read into variables: 0 beside the input, and where `inside` does not hold.
// Once it has read a unit, it does what `also` says, with the unit's number in place of `#`.
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
