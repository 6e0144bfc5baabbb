// ATTENTION, by rows: an invocation holds {{ tile.rows }} rows of queries, and their weighted sums, in registers, and goes through the keys one by
// one. Where a score is the largest one so far, what was summed before is scaled down to it.
// Adjacent invocations take rows of the same head. Each reads some units of a key and of its values, and broadcasts them to its whole
// subgroup: {{ tile.sharing }} have all. The first two lanes read units half of them apart, so that they read each cache line first, as in maps
// (schedules/invocation).
{% import "schedules/attention_last" as ends with context %}
{% import "schedules/attention_macros" as attention with context %}
{% include "schedules/attention_along" %}
{% macro units_along(name, what, count) %}
        # for load in range((count + tile.sharing - 1) // tile.sharing)
        let own_{{ name }}{{ load }} = {{ what }}_along(batch, key, min({{ load * tile.sharing }}u + hand, {{ count - 1 }}u));
        # endfor
        # for unit in range(count)
        # set half = tile.sharing // 2
        let {{ name }}{{ unit }} = subgroupBroadcast(own_{{ name }}{{ unit // tile.sharing }}, {{ unit % half * 2 + unit % tile.sharing // half }}u);
        # endfor
{% endmacro %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32, @builtin(subgroup_invocation_id) lane: u32) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let row_tile = {{ mod("number", down) }};
    let row = (row_tile * {{ tile.down }}u + me) * {{ tile.rows }}u;
    let rest = {{ div("number", down) }};
    let hand = lane % 2u * {{ tile.sharing // 2 }}u + lane % {{ tile.sharing }}u / 2u;
    let part = {{ div("rest", batches) }};
    let batch = {{ mod("rest", batches) }};
    // Drivers compile a loop faster than copies of its body.
    var queries: array<sum_t, {{ tile.rows * tile.dots }}>;
    for (var place = 0u; place < {{ tile.rows * tile.dots }}u + opaque_zero(); place++) {
        let query = query_start(batch, min(row + place / {{ tile.dots }}u, {{ rows - 1 }}u));
        queries[place] = query_step(query, place % {{ tile.dots }}u * 4u);
    }
    # for row in range(tile.rows)
    let place{{ row }} = min(row + {{ row }}u, {{ rows - 1 }}u);
    # for unit in range(tile.dots)
    let q{{ row }}_{{ unit }} = queries[{{ row * tile.dots + unit }}];
    # endfor
    # if causal
    let visible{{ row }} = visible_load(visible_place(batch, place{{ row }}));
    # endif
    # for unit in range(tile.units)
    var total{{ row }}_{{ unit }} = sum_t();
    # endfor
    var top{{ row }} = LOWEST;
    var mass{{ row }} = 0.0;
    # endfor
    let first = part * {{ share }}u;
{{ ends.last_key("row_tile * %du" % (tile.down * tile.rows), tile.down * tile.rows) }}
    for (var key = first; key < last; key++) {
{{ units_along("k", "key", tile.dots) }}
        # for row in range(tile.rows)
        let product{{ row }} = {% for unit in range(tile.dots) %}q{{ row }}_{{ unit }} * k{{ unit }}{{ " + " if not loop.last }}{% endfor %};
        let sum{{ row }} = (product{{ row }}.x + product{{ row }}.y) + (product{{ row }}.z + product{{ row }}.w);
        # set place = type_of("score_output_at") ~ "()" if is_plain else "score_output_place(batch, place" ~ row ~ ", key)"
        # if causal
        let seen{{ row }} = key < visible{{ row }};
        let score{{ row }} = select(LOWEST, score_finish({{ place }}, sum{{ row }}), seen{{ row }});
        # else
        let score{{ row }} = score_finish({{ place }}, sum{{ row }});
        # endif
        let before{{ row }} = top{{ row }};
        top{{ row }} = max(before{{ row }}, score{{ row }});
        let shrink{{ row }} = weight_of(before{{ row }} - top{{ row }});
        # if causal
        let weight{{ row }} = select(0.0, weight_of(score{{ row }} - top{{ row }}), seen{{ row }});
        # else
        let weight{{ row }} = weight_of(score{{ row }} - top{{ row }});
        # endif
        mass{{ row }} = mass{{ row }} * shrink{{ row }} + weight{{ row }};
        # endfor
{{ units_along("v", "value", tile.units) }}
        # for row in range(tile.rows)
        # for unit in range(tile.units)
        total{{ row }}_{{ unit }} = total{{ row }}_{{ unit }} * shrink{{ row }} + weight{{ row }} * v{{ unit }};
        # endfor
        # endfor
    }
    # set stored = tile.units + (parts > 1)
    var results = array<sum_t, {{ tile.rows * stored }}>({% for row in range(tile.rows) %}{{ ", " if row }}{% for unit in range(tile.units) %}{{ ", " if unit }}total{{ row }}_{{ unit }}{{ " / mass" ~ row if parts == 1 }}{% endfor %}{{ ", sum_t(top%d, mass%d, 0.0, 0.0)" % (row, row) if parts > 1 }}{% endfor %});
    for (var place = 0u; place < {{ tile.rows * stored }}u + opaque_zero(); place++) {
        keep(part, batch, row + place / {{ stored }}u, place % {{ stored }}u, results[place]);
    }
}
