// TILES: an invocation computes {{ step.count }} elements of the output, {{ step.tile|join(" x ") }}, that share their reads{{ ", of several rows" if step.rows }}.
# if held
// (It reads inputs that do not vary within a tile once: drivers must assume that a store changes them.)
# endif
{% include "schedules/locate" %}
{% if unit_bits < 32 %}
{% include "schedules/exchange" %}
{% endif %}
alias tile_s = {{ tile_s }};
# for name in held
var<private> {{ name }}: {{ name }}_t;
# endfor
fn keep(at: output_at, product: product_t{{ ", second: product_t" if paired }}) {
    # for dimension, size in step.edges
    if (at[{{ dimension }}] >= {{ size }}u) { return; }
    # endfor
    # if paired
    var next = at;
    next[{{ step.units|length - 1 }}]++;
    store_pair(at, output_bits(finish(at, product)), output_bits(finish(next, second)));
    # elif unit_bits < 32
    exchange(output_unit(at), output_bits(finish(at, product)));
    # else
    {{ buffer.store }}(output_base() + output_unit(at), output_bits(finish(at, product)));
    # endif
}
{% macro which_tile() %}
    var which = first;
    # for size in step.tile
    # if size > 1
    which[{{ loop.index0 }}] = {{ div("first[%d]" % loop.index0, size) }};
    # endif
    # endfor
{% endmacro %}
{% macro keep_units(count) %}
    var at = which;
    # for place in (step.offsets()|list)[:count]
    # set unit = loop.index0
    # if not paired or unit % 2 == 0
    # for units in step.units
    # if units > 1
    at[{{ loop.index0 }}] = which[{{ loop.index0 }}] * {{ units }}u + {{ place[loop.index0] }}u;
    # endif
    # endfor
    # if lanes == 1
    keep(at, numbers[{{ unit }}]);
    # else
    keep(at{% for one in range(unit, unit + (2 if paired else 1)) %}, product_t({% for lane in range(lanes) %}numbers[{{ one * lanes + lane }}]{% if not loop.last %}, {% endif %}{% endfor %}){% endfor %});
    # endif
    # endif
    # endfor
{% endmacro %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    var which: output_at;
    if (!locate(number, &which)) { return; }
    var first = which;
    # for size in step.tile
    # if size > 1
    first[{{ loop.index0 }}] = which[{{ loop.index0 }}] * {{ size }}u;
    # endif
    # endfor
    # for name in held
    {{ name }} = {{ name }}_load(first);
    # endfor
    # if step.rows
    first[{{ step.row_at }}] *= {{ step.rows }}u;
    tile(first);
}
fn keep_row(first: output_at, numbers: array<tile_s, {{ step.count }}>) {
{{ which_tile() }}
    # else
    let numbers = tile(first);
    # endif
{{ keep_units(step.count // lanes) }}
}
# if step.rows and step.count > step.tile[-1]
fn keep_start(first: output_at, numbers: array<tile_s, {{ step.tile[-1] }}>) {
{{ which_tile() }}
{{ keep_units(step.units[-1]) }}
}
# endif
