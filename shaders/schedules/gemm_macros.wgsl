// Common macros of the tiled schedules of products: the tile of a workgroup, the sums, their terms, their results. Sums are
// variables, or elements of an array per lane, in the order of the outputs.
{% macro workgroup_tile() %}
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let column_tile = {{ mod("number", across) }};
    let row_tile = {{ mod(div("number", across), down) }};
    let product_number = {{ div("number", across * down) }};
    # if parts > 1
    let part = {{ div("product_number", batches) }};
    let batch = {{ mod("product_number", batches) }};
    let first = part * {{ share }}u;
    let last = min(first + {{ share }}u, {{ inner[0] }}u);
    # else
    let part = 0u;
    let batch = product_number;
    let first = 0u;
    let last = {{ inner[0] }}u;
    # endif
{% endmacro %}
{% macro each_sum(prefix) %}{% for row in range(tile.rows) %}{% for unit in range(tile.units) %}{{ prefix }}{{ row }}_{{ unit }}{% if not loop.last %}, {% endif %}{% endfor %}{% if not loop.last %}, {% endif %}{% endfor %}{% endmacro %}
{% macro interleaved_sums(prefix) %}
        # for first in range(0, tile.rows, interleaved)
        # for unit in range(tile.units)
        # for start in range(0, 4 * interleaved, 4)
        sum_t({% for at in range(start, start + 4) %}{{ prefix }}{{ first + at % interleaved }}_{{ unit }}.{{ "xyzw"[at // interleaved] }}{{ ", " if not loop.last }}{% endfor %}),
        # endfor
        # endfor
        # endfor
{% endmacro %}
{% macro sums(prefix, type="sum_t") %}
    # for row in range(tile.rows)
    # for unit in range(tile.units)
    var {{ prefix }}{{ row }}_{{ unit }} = {{ type }}();
    # endfor
    # endfor
{% endmacro %}
{% macro element_of_unit(prefix, row) %}{{ prefix }}{{ row // width }}{{ "." ~ "xyzw"[row % width] if width > 1 else "" }}{% endmacro %}
{% macro unit_of_step(name, fetch, unit, step) %}{% if fetch.paired %}{{ name }}_pair{{ step }}_{{ unit // 2 * 2 }}[{{ unit % 2 }}]{% elif fetch.steps > 1 %}{{ name }}_steps{{ unit }}[{{ step }}]{% else %}{{ name }}_fetch({{ name }}_starts{{ unit }}, {{ inner_names }}{{ " + " ~ step ~ "u" if step }}){% endif %}{% endmacro %}
{% macro add_to_totals() %}
    # for row in range(tile.rows)
    # for unit in range(tile.units)
    total{{ row }}_{{ unit }} += {{ "sum_t(sum%d_%d)" % (row, unit) if in_float16 else "sum%d_%d" % (row, unit) }};
    # endfor
    # endfor
{% endmacro %}
{% macro lane_arrays(prefix) %}
    # for lane in "xyzw"
    var {{ prefix }}_{{ lane }} = array<{{ sum_s }}, {{ tile.rows * tile.units }}>();
    # endfor
{% endmacro %}
{% macro lane_of_sum(prefix, row, unit, lane) %}{% set at = lane * interleaved + row % interleaved %}{{ prefix }}_{{ "xyzw"[at % 4] }}[{{ (row // interleaved * tile.units + unit) * interleaved + at // 4 }}u]{% endmacro %}
{% macro add_lanes_to_totals() %}
    # for place in range(tile.rows * tile.units)
    # for lane in "xyzw"
    total_{{ lane }}[{{ place }}u] += sum_{{ lane }}[{{ place }}u];
    # endfor
    # endfor
{% endmacro %}
{% macro kept(prefix, place) %}{% if in_memory %}sum_t({% for lane in "xyzw" %}{{ prefix }}_{{ lane }}[{{ place }}]{{ ", " if not loop.last }}{% endfor %}){% else %}results[{{ place }}]{% endif %}{% endmacro %}
{% macro keep_all(opaque=false) %}
    # set prefix = "total" if chunk or in_float16 else "sum"
    # if not in_memory
    var results = array<sum_t, {{ tile.rows * tile.units }}>({{ interleaved_sums(prefix) if interleaved > 1 else each_sum(prefix) }});
    # endif
    # set kept = kept(prefix, "place") ~ (", " ~ kept(prefix, "place + 1u") if paired else "")
    for (var place = 0u; place < {{ tile.rows * tile.units }}u{{ " + opaque_zero()" if opaque }}; place += {{ 2 if paired else 1 }}u) {
        # if interleaved > 1
        let unit = (column + (place / {{ interleaved }}u % {{ tile.units }}u) * {{ between }}u) * {{ interleaved }}u + place % {{ interleaved }}u;
        keep(part, batch, row / {{ interleaved }}u + place / {{ tile.units * interleaved }}u, unit, {{ kept }});
        # else
        keep(part, batch, row + place / {{ tile.units }}u, column + (place % {{ tile.units }}u) * {{ between }}u, {{ kept }});
        # endif
    }
{% endmacro %}
