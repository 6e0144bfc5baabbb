// REDUCE, across rows: one invocation iterates over {{ width }} adjacent rows of units in parallel, all of them or, for partial results, a
// share. Adjacent invocations take adjacent rows, those in lockstep at a time as far as rows are enough for all of them.
{% import "schedules/reduce_lanes" as row with context %}
{% set partial = schedule == "partial" %}
{% set size = source.sizes[across] %}
{% set ragged = size % width != 0 %}
{% macro named() %}{% for index in range(width) %}{{ " " if index }}place{{ index }}{% endfor %}{% endmacro %}
{% set places = named().split() %}
{% set apart = launch.lockstep if width > 1 else 0 %}
{% macro beside(index) %}first_place + {{ index }}u{{ " * apart" if apart }}{% endmacro %}
{% include "schedules/locate" %}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    # if partial
    let share = at[{{ output.rank - 1 }}];
{{ row.share_bounds() }}
    # endif
    # if apart
    let block = at[{{ across }}] / {{ apart }}u * {{ apart * width }}u;
    let is_whole = block + {{ apart * width }}u <= {{ size }}u;
    let first_place = select(at[{{ across }}] * {{ width }}u, block + at[{{ across }}] % {{ apart }}u, is_whole);
    let apart = select(1u, {{ apart }}u, is_whole);
    # else
    let first_place = at[{{ across }}] * {{ width }}u;
    # endif
    # for place in places
    var {{ place }} = at;
    {{ place }}[{{ across }}] = {% if ragged %}min({{ beside(loop.index0) }}, {{ size - 1 }}u){% else %}{{ beside(loop.index0) }}{% endif %};
    # endfor
{{ row.walk("first", together, "end", places) if partial else row.walk("0u", 1, count ~ "u", places) }}
    # for place in places
    # set first_lane = loop.index0 * lanes
    # if ragged
    if ({{ beside(loop.index0) }} >= {{ size }}u) { return; }
    # endif
    # if output.lanes == lanes and not partial
    {{ buffer.store }}(output_base() + output_unit({{ place }}), output_bits(output_t({% for lane in range(lanes) %}{{ ", " if lane }}{{ row.finished("acc%d" % (first_lane + lane), place) }}{% endfor %})));
    # else
    # for lane in range(lanes)
    # if lanes > 1
    {{ place }}[{{ across }}] = ({{ beside(first_lane // lanes) }}) * {{ lanes }}u + {{ lane }}u;
    # endif
    {{ buffer.store }}(output_base() + output_unit({{ place }}), output_bits({{ "acc" ~ (first_lane + lane) if partial else row.finished("acc%d" % (first_lane + lane), place) }}));
    # endfor
    # endif
    # endfor
}
{% import "schedules/invocation" as invocation with context %}
@compute @workgroup_size({{ launch.workgroup }})
fn main({{ invocation.parameters() }}) {
    load_sizes();
{{ invocation.numbered() }}
    if (number < {{ launch.total }}u) { handle(number); }
}
