// ATTENTION, in slabs: a workgroup takes {{ tile.down * tile.rows }} rows of queries and goes through the keys, {{ tile.block }} at a time. Each of its {{ tile.across }} x {{ tile.down }}
// invocations computes {{ tile.rows }} x 4 scores of a block, and then {{ tile.units }} units of four columns of the weighted sum of its values.
// Both are products of two slabs in workgroup memory, in two halves: while invocations multiply what one holds, the next slab is
// on its way to the other. Slabs of queries and keys hold {{ tile.depth }} elements of a head, those of weights and values {{ tile.across }} and {{ group }} keys.
// (What is read from memory is uniform to WGSL only by way of workgroupUniformLoad, and barriers need uniform control flow. Where
// loops end is opaque: some compilers unroll loops of known length. Indices that differ by a constant have a dimension of
// their own: drivers then check them once.)
# if launch.subgroup
// Subgroups of any size from {{ launch.subgroup }} on combine the results of rows. Invocations are numbered by subgroup and lane, so only full
// subgroups are assumed, not how a driver spreads invocations over them.
# endif
{% set last_step = (head - 1) // tile.depth * tile.depth %}
{% set loads = tile.across // tile.down %}
{% set group = tile.across // tile.units %}
{% set whole = not causal and keys % tile.block == 0 %}
{% import "schedules/attention_last" as ends with context %}
{% import "schedules/attention_macros" as attention with context %}
# set quads = tile.depth // 4
alias sum_t = vec4<f32>;
alias rows_t = vec4<f32>;
const LOWEST = -3.4028234e38f;
var<workgroup> a_slab: array<array<array<sum_t, {{ tile.depth }}>, {{ tile.down }}>, 2>;
var<workgroup> b_slab: array<array<array<sum_t, {{ tile.across }}>, {{ tile.depth }}>, 2>;
# if causal
var<workgroup> most_visible: u32;
# endif
{% include "schedules/attention_weight" %}
fn weights_of(x: sum_t) -> sum_t {
    return sum_t(weight_of(x.x), weight_of(x.y), weight_of(x.z), weight_of(x.w));
}
# for name in ("query", "key")
fn {{ name }}_piece(start: {{ type_of(name ~ "_at") }}, step: u32) -> sum_t {
    # if head % tile.depth
    let piece = {{ name }}_step(start, min(step, {{ (head + 3) // 4 * 4 - 4 }}u));
    # if head % 4
    return select(sum_t(), piece, vec4<u32>(step) + vec4<u32>(0u, 1u, 2u, 3u) < vec4<u32>({{ head }}u));
    # else
    return select(sum_t(), piece, step < {{ head }}u);
    # endif
    # else
    return {{ name }}_step(start, step);
    # endif
}
# endfor
fn value_piece(batch: u32, key: u32, last: u32, unit: u32) -> sum_t {
    # if whole
    var at = value_place(batch, key);
    # else
    var at = value_place(batch, min(key, last - 1u));
    # endif
    at[3] = min(unit, {{ units - 1 }}u);
    # if whole
    return value_load(at);
    # else
    return select(sum_t(), value_load(at), key < last); // 0 times what lies behind the last one may be NaN
    # endif
}
{% macro repeated(name, count, first=0) %}
        # if tile.written_out
        # for number in range(first, count)
        {
        const {{ name }} = {{ number }}u;
{{ caller() }}
        }
        # endfor
        # else
        for (var {{ name }} = {{ first }}u; {{ name }} < {{ count }}u + opaque_zero(); {{ name }}++) {
{{ caller() }}
        }
        # endif
{% endmacro %}
{% macro fetch_pieces(step) %}
        let next_query = query_piece(query_starts, {{ step }} + quad * 4u);
    # for load in range(loads)
        let next_key{{ load }} = key_piece(key_starts{{ load }}, {{ step }} + quad * 4u);
    # endfor
{% endmacro %}
{% macro keep_pieces(half) %}
        a_slab[{{ half }}][own / {{ tile.rows }}u][own % {{ tile.rows }}u * {{ quads }}u + quad] = next_query;
    # for load in range(loads)
        b_slab[{{ half }}][quad * 4u + key_own{{ load }} / {{ tile.across }}u][(key_own{{ load }} % {{ tile.across }}u) ^ (quad * 2u)] = next_key{{ load }};
    # endfor
{% endmacro %}
{% macro fetch_values(slab) %}
    # for load in range(loads)
        let value_key{{ load }} = start + {{ slab }} * {{ group }}u + value_row{{ load }} / {{ tile.units }}u;
        let next_value{{ load }} = value_piece(batch, value_key{{ load }}, last, first_column + value_row{{ load }} % {{ tile.units }}u * {{ tile.across }}u + lane);
    # endfor
{% endmacro %}
{% macro keep_values(half) %}
    # for load in range(loads)
        b_slab[{{ half }}][value_row{{ load }}][lane] = next_value{{ load }};
    # endfor
{% endmacro %}
{% macro keep_weights(half, part) %}
        a_slab[{{ half }}][line][lane] = rows_t({% for row in range(tile.rows) %}score{{ row }}.{{ part }}{{ ", " if not loop.last }}{% endfor %});
{% endmacro %}
{% macro combine(name, half, merged) %}
    # if launch.subgroup
        # for distance in (1, 2, 4, 8)
        {{ "if (lanes > %du) " % distance if distance >= launch.subgroup }}{ {{ name }} = {{ merged % ("subgroupShuffleXor(%s, %du)" % (name, distance)) }}; }
        # endfor
        # if launch.subgroup < tile.across
        if (lanes < {{ tile.across }}u) {
            a_slab[{{ half }}][line][lane] = {{ name }};
            workgroupBarrier();
            for (var other = lanes; other < {{ tile.across }}u; other += lanes) {
                {{ name }} = {{ merged % "a_slab[%d][line][lane ^ other]" % half }};
            }
        }
        # endif
    # else
        a_slab[{{ half }}][line][lane] = {{ name }};
        workgroupBarrier();
        # call repeated("other", tile.across, 1)
        {{ name }} = {{ merged % "a_slab[%d][line][lane ^ other]" % half }};
        # endcall
    # endif
{% endmacro %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) workgroup: vec3<u32>, {{ "@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) place: u32, @builtin(subgroup_size) lanes: u32" if launch.subgroup else "@builtin(local_invocation_index) me: u32" }}) {
    load_sizes();
    # if launch.subgroup
    let me = subgroup * lanes + place;
    # endif
    let number = workgroup.x + workgroup.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let first_column = {{ mod("number", across) }} * {{ tile.across * tile.units }}u;
    let first_row = {{ mod(div("number", across), down) }} * {{ tile.down * tile.rows }}u;
    let rest = {{ div("number", across * down) }};
    let part = {{ div("rest", batches) }};
    let batch = {{ mod("rest", batches) }};
    let lane = me % {{ tile.across }}u;
    let line = me / {{ tile.across }}u;
    let row = first_row + line * {{ tile.rows }}u;
    let column = first_column + lane;
    // What it brings to slabs: four elements of a query, and of keys, and units of values. Keys of different quads of elements are
    // in different orders, so that adjacent invocations write to different banks.
    let quad = me % {{ quads }}u;
    let own = me / {{ quads }}u;
    let query_starts = query_start(batch, min(first_row + own, {{ rows - 1 }}u));
    # for load in range(loads)
    let key_own{{ load }} = own + {{ load * launch.workgroup // quads }}u;
    let value_row{{ load }} = line + {{ load * tile.down }}u;
    # endfor
    # for row in range(tile.rows)
    # if causal
    let visible{{ row }} = visible_load(visible_place(batch, min(row + {{ row }}u, {{ rows - 1 }}u)));
    # endif
    # for unit in range(tile.units)
    var total{{ row }}_{{ unit }} = sum_t();
    # endfor
    # endfor
    var top0 = rows_t(LOWEST);
    var mass0 = rows_t();
    let first = part * {{ share }}u;
{{ ends.last_key("first_row", tile.down * tile.rows) }}
    for (var start = first; start < last; start += {{ tile.block }}u) {
        # for load in range(loads)
        let key_starts{{ load }} = key_start(batch, {{ "start + key_own%d" % load if whole else "min(start + key_own%d, last - 1u)" % load }});
        # endfor
        # for row in range(tile.rows)
        var score{{ row }} = sum_t();
        # endfor
        {
{{ fetch_pieces("0u") }}
{{ keep_pieces(0) }}
        }
        workgroupBarrier();
        for (var pair = 0u; pair < {{ head }}u + opaque_zero(); pair += {{ 2 * tile.depth }}u) {
        # call repeated("half", 2)
            let step = pair + half * {{ tile.depth }}u;
            # if last_step % (2 * tile.depth) == 0
            if (half == 1u && step > {{ last_step }}u) { break; }
            # endif
{{ fetch_pieces("min(step + %du, %du)" % (tile.depth, last_step)) }}
            # call repeated("number", quads)
            # for key in range(4)
            let k{{ key }} = b_slab[half][number * 4u + {{ key }}u][lane ^ (number * 2u)];
            # endfor
            # for part in "xyzw"
            let k_{{ part }} = sum_t(k0.{{ part }}, k1.{{ part }}, k2.{{ part }}, k3.{{ part }});
            # endfor
            # for row in range(tile.rows)
            let q{{ row }} = a_slab[half][line][{{ row * quads }}u + number];
            # for part in "xyzw"
            score{{ row }} += q{{ row }}.{{ part }} * k_{{ part }};
            # endfor
            # endfor
            # endcall
{{ keep_pieces("1u - half") }}
            workgroupBarrier();
        # endcall
        }
{{ fetch_values("0u") }}
        # if not whole or not is_plain
        let key = vec4<u32>(start + lane) + vec4<u32>(0u, {{ tile.across }}u, {{ 2 * tile.across }}u, {{ 3 * tile.across }}u);
        # endif
        # for row in range(tile.rows)
        # if causal
        let seen{{ row }} = key < vec4<u32>(min(last, visible{{ row }}));
        # elif not whole
        let seen{{ row }} = key < vec4<u32>(last);
        # endif
        # if not is_plain
        let row{{ row }} = min(row + {{ row }}u, {{ rows - 1 }}u);
        # endif
        score{{ row }} = sum_t(
        # for part in "xyzw"
            # set key = "key." ~ part if whole else "min(key.%s, last - 1u)" % part
            score_finish({{ type_of("score_output_at") ~ "()" if is_plain else "score_output_place(batch, row%d, %s)" % (row, key) }}, score{{ row }}.{{ part }}),
        # endfor
        );
        # if not whole
        score{{ row }} = select(sum_t(LOWEST), score{{ row }}, seen{{ row }});
        # endif
        # endfor
        let before0 = top0;
        top0 = max(top0, rows_t({% for row in range(tile.rows) %}max(max(score{{ row }}.x, score{{ row }}.y), max(score{{ row }}.z, score{{ row }}.w)){{ ", " if not loop.last }}{% endfor %}));
{{ combine("top0", 1, "max(top0, %s)") }}
        # for row in range(tile.rows)
        # set weights = "weights_of(score%d - %s)" % (row, attention.of_row("top", row))
        score{{ row }} = {{ weights if whole else "select(sum_t(), %s, seen%d)" % (weights, row) }};
        # endfor
{{ keep_weights("0", "x") }}
{{ keep_values(0) }}
        let shrink0 = weights_of(before0 - top0);
        mass0 = mass0 * shrink0 + rows_t({% for row in range(tile.rows) %}(score{{ row }}.x + score{{ row }}.y) + (score{{ row }}.z + score{{ row }}.w){{ ", " if not loop.last }}{% endfor %});
        # for row in range(tile.rows)
        # for unit in range(tile.units)
        total{{ row }}_{{ unit }} *= {{ attention.of_row("shrink", row) }};
        # endfor
        # endfor
        workgroupBarrier();
        for (var slab = 0u; slab < {{ 4 * tile.units }}u + opaque_zero(); slab += {{ 2 * tile.units }}u) {
        # call repeated("number", 2 * tile.units)
{{ fetch_values("min(slab + number + 1u, %du)" % (4 * tile.units - 1)) }}
            if (number == 0u) {
{{ keep_weights("1", "y") }}
            }
            # call repeated("index", group)
            let w0 = a_slab[number / {{ tile.units }}u][line][number % {{ tile.units }}u * {{ group }}u + index];
            # for unit in range(tile.units)
            let v{{ unit }} = b_slab[number % 2u][index * {{ tile.units }}u + {{ unit }}u][lane];
            # for row in range(tile.rows)
            total{{ row }}_{{ unit }} += {{ attention.of_row("w", row) }} * v{{ unit }};
            # endfor
            # endfor
            # endcall
            if (number == {{ 2 * tile.units - 1 }}u) {
{{ keep_weights("0", "z") }}
                # for row in range(tile.rows)
                score{{ row }} = score{{ row }}.zwzw;
                # endfor
            }
{{ keep_values("(number + 1u) % 2u") }}
            workgroupBarrier();
        # endcall
        }
    }
{{ combine("mass0", 0, "mass0 + %s") }}
{{ attention.keep_all() }}
}
