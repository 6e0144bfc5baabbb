// ATTENTION, by lanes: a subgroup holds {{ tile.rows }} rows of queries, and their weighted sums, and goes through the keys, {{ tile.across }} at a time. Its
// invocations share the units of each key and of its values, and each has the score of one key.
// The first two lanes read units half of them apart, so that they read each cache line first, as in maps (schedules/invocation).
{% import "schedules/attention_last" as ends with context %}
{% set units_of_key = head // 4 %}
{% include "schedules/attention_along" %}
{% macro own(load, count) %}{% if (load + 1) * tile.across > count %}min({{ load * tile.across }}u + hand, {{ count - 1 }}u){% else %}{{ load * tile.across }}u + hand{% endif %}{% endmacro %}
{% set distances = [1, 2, 4, 8][:{2: 1, 4: 2, 8: 3}[tile.across]] %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32, @builtin(subgroup_invocation_id) lane: u32) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let row = {{ mod("number", down) }} * {{ tile.rows }}u;
    let rest = {{ div("number", down) }};
    let part = {{ div("rest", batches) }};
    let batch = {{ mod("rest", batches) }};
    let hand = lane % 2u * {{ tile.across // 2 }}u + lane / 2u;
    # for row in range(tile.rows)
    let place{{ row }} = min(row + {{ row }}u, {{ rows - 1 }}u);
    # for unit in range(tile.dots)
    # set whole = (unit + 1) * tile.across <= units_of_key
    let q{{ row }}_{{ unit }} = {{ "" if whole else "select(sum_t(), " }}query_step(query_start(batch, place{{ row }}), ({{ own(unit, units_of_key) }}) * 4u){{ "" if whole else ", %du + hand < %du)" % (unit * tile.across, units_of_key) }};
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
{{ ends.last_key("row", tile.rows) }}
    for (var start = first; start < last; start += {{ tile.keys }}u) {
        # for each in range(tile.keys)
        let key{{ each }} = {{ "min(start + %du, last - 1u)" % each if each else "start" }};
        # for unit in range(tile.dots)
        let k{{ each }}_{{ unit }} = key_along(batch, key{{ each }}, {{ own(unit, units_of_key) }});
        # endfor
        # for row in range(tile.rows)
        let product{{ row }}_{{ each }} = {% for unit in range(tile.dots) %}q{{ row }}_{{ unit }} * k{{ each }}_{{ unit }}{{ " + " if not loop.last }}{% endfor %};
        var sum{{ row }}_{{ each }} = (product{{ row }}_{{ each }}.x + product{{ row }}_{{ each }}.y) + (product{{ row }}_{{ each }}.z + product{{ row }}_{{ each }}.w);
        # for distance in distances
        sum{{ row }}_{{ each }} += subgroupShuffleXor(sum{{ row }}_{{ each }}, {{ distance }}u);
        # endfor
        # endfor
        # endfor
        # for row in range(tile.rows)
        let before{{ row }} = top{{ row }};
        # for each in range(tile.keys)
        # set place = type_of("score_output_at") ~ "()" if is_plain else "score_output_place(batch, place" ~ row ~ ", key" ~ each ~ ")"
        let seen{{ row }}_{{ each }} = start + {{ each }}u < {{ "min(last, visible%d)" % row if causal else "last" }};
        let score{{ row }}_{{ each }} = select(LOWEST, score_finish({{ place }}, sum{{ row }}_{{ each }}), seen{{ row }}_{{ each }});
        top{{ row }} = max(top{{ row }}, score{{ row }}_{{ each }});
        # endfor
        let shrink{{ row }} = weight_of(before{{ row }} - top{{ row }});
        mass{{ row }} *= shrink{{ row }};
        # for unit in range(tile.units)
        total{{ row }}_{{ unit }} *= shrink{{ row }};
        # endfor
        # for each in range(tile.keys)
        let weight{{ row }}_{{ each }} = select(0.0, weight_of(score{{ row }}_{{ each }} - top{{ row }}), seen{{ row }}_{{ each }});
        mass{{ row }} += weight{{ row }}_{{ each }};
        # endfor
        # endfor
        # for each in range(tile.keys)
        # for unit in range(tile.units)
        let v{{ each }}_{{ unit }} = value_along(batch, key{{ each }}, {{ own(unit, units) }});
        # for row in range(tile.rows)
        total{{ row }}_{{ unit }} += weight{{ row }}_{{ each }} * v{{ each }}_{{ unit }};
        # endfor
        # endfor
        # endfor
    }
    # for row in range(tile.rows)
    # for unit in range(tile.units)
    if ({{ unit * tile.across }}u + hand < {{ units }}u) {
        keep(part, batch, row + {{ row }}u, {{ unit * tile.across }}u + hand, total{{ row }}_{{ unit }}{{ " / mass%d" % row if parts == 1 }});
    }
    # endfor
    # if parts > 1
    if (me == 0u) { keep(part, batch, row + {{ row }}u, {{ units }}u, sum_t(top{{ row }}, mass{{ row }}, 0.0, 0.0)); }
    # endif
    # endfor
}
