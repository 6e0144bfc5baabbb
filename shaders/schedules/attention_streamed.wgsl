// ATTENTION, streamed: few rows read each key and its values once, straight to registers. A workgroup takes {{ tile.rows }} rows and goes
// through the keys, {{ tile.block }} at a time: {{ tile.lanes }} invocations share a key and add their products, four keys of each in flight; then
// each weighs a key; then {{ tile.down }} slices of {{ tile.across }} invocations, each with four columns, sum the values of every {{ tile.down }}th key.
// (What is read from memory is uniform to WGSL only by way of workgroupUniformLoad, and barriers need uniform control flow. Where
// loops end is opaque: some compilers unroll loops of known length.)
# if launch.subgroup
// Subgroups of any size from {{ launch.subgroup }} on add products. Invocations are numbered by subgroup and lane, so only full subgroups are
// assumed, not how a driver spreads invocations over them.
# endif
{% set whole = not causal and keys % tile.block == 0 %}
{% import "schedules/attention_last" as ends with context %}
{% import "schedules/attention_macros" as attention with context %}
{% from "schedules/attention_macros" import row_parts, rows_t with context %}
# set quads = (head // 4)|constant
# set keys_at_once = 4 * tile.block // tile.lanes
alias sum_t = vec4<f32>;
alias rows_t = {{ rows_t }};
const LOWEST = -3.4028234e38f;
var<workgroup> queries: array<array<sum_t, {{ quads }}>, {{ tile.rows }}>;
var<workgroup> partials: array<array<sum_t, {{ tile.block // 2 }}>, {{ tile.rows }}>;
var<workgroup> weights: array<rows_t, {{ tile.block }}>;
var<workgroup> tops: array<rows_t, {{ tile.most_slices }}>;
# if causal
var<workgroup> most_visible: u32;
# endif
{% include "schedules/attention_weight" %}
fn weights_of(x: rows_t) -> rows_t {
    return rows_t({% for part in row_parts[:tile.rows] %}weight_of(x{{ part }}){{ ", " if not loop.last }}{% endfor %});
}
fn value_along(batch: u32, key: u32, unit: u32) -> sum_t {
    var at = value_place(batch, key);
    at[3] = unit;
    return value_load(at);
}
{% macro halve(name, half, place, among) %}
        if ({{ among }} >= {{ half }}u && {{ among }} < {{ 2 * half }}u) {
            # for row in range(tile.rows)
            partials[{{ row }}][{{ place }}] = {{ name }}{{ row }};
            # endfor
        }
        workgroupBarrier();
        if ({{ among }} < {{ half }}u) {
            # for row in range(tile.rows)
            {{ name }}{{ row }} += partials[{{ row }}][{{ place }}];
            # endfor
        }
        workgroupBarrier();
{% endmacro %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, {{ "@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) in_subgroup: u32, @builtin(subgroup_size) lanes: u32" if launch.subgroup else "@builtin(local_invocation_index) me: u32" }}) {
    load_sizes();
    # if launch.subgroup
    let me = subgroup * lanes + in_subgroup;
    # endif
    let number = workgroup.x + workgroup.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let row = {{ mod("number", down) }} * {{ tile.rows }}u;
    let rest = {{ div("number", down) }};
    let part = {{ div("rest", batches) }};
    let batch = {{ mod("rest", batches) }};
    let lane = me % {{ tile.lanes }}u;
    let own = me / {{ tile.lanes }}u;
    let column = me % {{ tile.across }}u;
    let slice = me / {{ tile.across }}u;
    for (var task = me; task < {{ quads * tile.rows }}u; task += {{ launch.workgroup }}u) {
        let query_row = task / {{ quads }}u;
        let query_quad = task % {{ quads }}u;
        queries[query_row][query_quad] = query_step(query_start(batch, min(row + query_row, {{ rows - 1 }}u)), query_quad * 4u);
    }
    # for row in range(tile.rows)
    # if causal
    let visible{{ row }} = visible_load(visible_place(batch, min(row + {{ row }}u, {{ rows - 1 }}u)));
    # endif
    var total{{ row }} = sum_t();
    # endfor
    var top0 = rows_t(LOWEST);
    var mass0 = rows_t();
    let first = part * {{ share }}u;
{{ ends.last_key("row", tile.rows) }}
    # if not causal
    workgroupBarrier();
    # endif
    for (var start = first; start < last; start += {{ tile.block }}u) {
        for (var offset = 0u; offset < {{ tile.block }}u + opaque_zero(); offset += {{ keys_at_once }}u) {
            # for number in range(4)
            let key_start{{ number }} = key_start(batch, {{ "start + offset + own * 4u + %du" % number if whole else "min(start + offset + own * 4u + %du, last - 1u)" % number }});
            # endfor
            # for row in range(tile.rows)
            var product{{ row }} = sum_t();
            # endfor
            for (var quad = lane; quad < {{ quads }}u + opaque_zero(); quad += {{ tile.lanes * tile.steps }}u) {
                # for step in range(tile.steps)
                let quad{{ step }} = quad + {{ step * tile.lanes }}u;
                # for number in range(4)
                let k{{ step }}_{{ number }} = key_step(key_start{{ number }}, quad{{ step }} * 4u);
                # endfor
                # endfor
                # for step in range(tile.steps)
                # for row in range(tile.rows)
                {
                    let q = queries[{{ row }}][quad{{ step }}];
                    product{{ row }} += sum_t({% for number in range(4) %}dot(q, k{{ step }}_{{ number }}){{ ", " if not loop.last }}{% endfor %});
                }
                # endfor
                # endfor
            }
            # for power in range(8, -1, -1) if 2 ** power < tile.lanes
            # set half = 2 ** power
            # if half < launch.subgroup
            # for row in range(tile.rows)
            product{{ row }} += subgroupShuffleXor(product{{ row }}, {{ half }}u);
            # endfor
            # else
{{ halve("product", half, "own * %du + lane %% %du" % (half, half), "lane") }}
            # endif
            # endfor
            if (lane == 0u) {
                # for part in "xyzw"
                weights[offset + own * 4u + {{ loop.index0 }}u] = rows_t({% for row in range(tile.rows) %}product{{ row }}.{{ part }}{{ ", " if not loop.last }}{% endfor %});
                # endfor
            }
        }
        workgroupBarrier();
        let key = start + me;
        var score0 = weights[me];
        # for row in range(tile.rows)
        # set score = attention.of_row("score", row)
        # if causal
        let seen{{ row }} = key < min(last, visible{{ row }});
        # elif not whole
        let seen{{ row }} = key < last;
        # endif
        {{ score }} = score_finish({{ type_of("score_output_at") ~ "()" if is_plain else "score_output_place(batch, min(row + %du, %du), %s)" % (row, rows - 1, "key" if whole else "min(key, last - 1u)") }}, {{ score }});
        # if not whole
        {{ score }} = select(LOWEST, {{ score }}, seen{{ row }});
        # endif
        # endfor
        weights[me] = score0;
        workgroupBarrier();
        if (me < {{ tile.most_slices }}u) {
            var highest = weights[me];
            for (var other = me + {{ tile.most_slices }}u; other < {{ tile.block }}u; other += {{ tile.most_slices }}u) { highest = max(highest, weights[other]); }
            tops[me] = highest;
        }
        workgroupBarrier();
        let before = top0;
        for (var other = 0u; other < {{ tile.most_slices }}u + opaque_zero(); other++) { top0 = max(top0, tops[other]); }
        score0 = weights_of(score0 - top0);
        # if not whole
        # for row in range(tile.rows)
        # set score = attention.of_row("score", row)
        {{ score }} = select(0.0, {{ score }}, seen{{ row }});
        # endfor
        # endif
        weights[me] = score0;
        let shrink0 = weights_of(before - top0);
        mass0 *= shrink0;
        # for row in range(tile.rows)
        total{{ row }} *= {{ attention.of_row("shrink", row) }};
        # endfor
        workgroupBarrier();
        let count = min({{ tile.block }}u, last - start);
        for (var index = slice; index < count; index += {{ tile.down * tile.values_at_once }}u) {
            # for number in range(tile.values_at_once)
            let index{{ number }} = {{ "index + %du" % (number * tile.down) if whole or number == 0 else "min(index + %du, count - 1u)" % (number * tile.down) }};
            let v{{ number }} = value_along(batch, start + index{{ number }}, min(column, {{ units - 1 }}u));
            # endfor
            # for number in range(tile.values_at_once)
            {{ "if (index + %du < count) " % (number * tile.down) if not whole and number }}{
                let w0 = weights[index{{ number }}];
                mass0 += w0;
                # for row in range(tile.rows)
                total{{ row }} += {{ attention.of_row("w", row) }} * v{{ number }};
                # endfor
            }
            # endfor
        }
        workgroupBarrier();
    }
    if (column == 0u) { tops[slice] = mass0; }
    # for power in range(8, -1, -1) if 2 ** power < tile.down
    # set half = 2 ** power
{{ halve("total", half, "slice %% %du * %du + column" % (half, tile.across), "slice") }}
    # endfor
    if (slice > 0u) { return; }
    for (var other = 1u; other < {{ tile.down }}u + opaque_zero(); other++) { mass0 += tops[other]; }
    # for row in range(tile.rows)
    let total{{ row }}_0 = total{{ row }};
    # endfor
{{ attention.keep_all() }}
}
