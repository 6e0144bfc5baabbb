// What the tiled schedules of products share: which tile a workgroup has, the sums, what goes into them, their end.
{% macro workgroup_tile() %}
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let column_tile = number % {{ across }}u;
    let row_tile = (number / {{ across }}u) % {{ down }}u;
    let product_number = number / {{ across * down }}u;
    # if parts > 1
    let part = product_number / {{ batches }}u;
    let batch = product_number % {{ batches }}u;
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
{% macro keep_all(opaque="") %}
    # if interleaved > 1
    var results = array<sum_t, {{ tile.rows * tile.units }}>({{ interleaved_sums("total" if chunk or in_float16 else "sum") }});
    # else
    var results = array<sum_t, {{ tile.rows * tile.units }}>({{ each_sum("total" if chunk or in_float16 else "sum") }});
    # endif
    # set kept = "results[place], results[place + 1u]" if paired else "results[place]"
    for (var place = 0u; place < {{ tile.rows * tile.units }}u{{ opaque }}; place += {{ 2 if paired else 1 }}u) {
        # if interleaved > 1
        let unit = (column + (place / {{ interleaved }}u % {{ tile.units }}u) * {{ between }}u) * {{ interleaved }}u + place % {{ interleaved }}u;
        keep(part, batch, row / {{ interleaved }}u + place / {{ tile.units * interleaved }}u, unit, {{ kept }});
        # else
        keep(part, batch, row + place / {{ tile.units }}u, column + (place % {{ tile.units }}u) * {{ between }}u, {{ kept }});
        # endif
    }
{% endmacro %}
