// REDUCE, across rows: one invocation iterates over {{ width }} adjacent rows of units in parallel, all of them or, for partial results, a
// share. Adjacent invocations take adjacent rows.
{% import "schedules/reduce_lanes" as row with context %}
{% set partial = schedule == "partial" %}
{% set size = source.sizes[across] %}
{% set ragged = size % width != 0 %}
{% macro named() %}{% for index in range(width) %}{{ " " if index }}place{{ index }}{% endfor %}{% endmacro %}
{% set places = named().split() %}
{% include "schedules/locate" %}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    # if partial
    let share = at[{{ output.rank - 1 }}];
{{ row.share_bounds() }}
    # endif
    let first_place = at[{{ across }}] * {{ width }}u;
    # for place in places
    var {{ place }} = at;
    {{ place }}[{{ across }}] = {% if ragged %}min(first_place + {{ loop.index0 }}u, {{ size - 1 }}u){% else %}first_place + {{ loop.index0 }}u{% endif %};
    # endfor
{{ row.walk("first", together, "end", places) if partial else row.walk("0u", 1, count ~ "u", places) }}
    # for place in places
    # set first_lane = loop.index0 * lanes
    # if ragged
    if (first_place + {{ loop.index0 }}u >= {{ size }}u) { return; }
    # endif
    # if output.lanes == lanes and not partial
    {{ buffer.store }}(output_base() + output_unit({{ place }}), output_bits(output_t({% for lane in range(lanes) %}{{ ", " if lane }}{{ row.finished("acc%d" % (first_lane + lane), place) }}{% endfor %})));
    # else
    # for lane in range(lanes)
    # if lanes > 1
    {{ place }}[{{ across }}] = (first_place + {{ first_lane // lanes }}u) * {{ lanes }}u + {{ lane }}u;
    # endif
    {{ buffer.store }}(output_base() + output_unit({{ place }}), output_bits({{ "acc" ~ (first_lane + lane) if partial else row.finished("acc%d" % (first_lane + lane), place) }}));
    # endfor
    # endif
    # endfor
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number < {{ launch.total }}u) { handle(number); }
}
