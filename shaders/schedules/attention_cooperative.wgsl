// ATTENTION, cooperative: a workgroup takes {{ tile_rows }} rows of queries and goes through the keys, {{ block }} at a time. Each of its four subgroups
// has {{ own_rows }} rows, whose queries and sums of values it holds as matrices{{ ", half of the keys of a block, and %s" % ("sums of their values" if splits_keys else "half of the columns") if across > 1 }}. Sums, scores, maxima and weights are float32;
// operands have the type of the matrices, {{ element_type }}, which weights get for the second product. Scores go through workgroup memory, where
// {{ sharing }} invocation{{ "s share" if sharing > 1 else " takes" }} a row, and exchange the largest score of their keys. Keys and then values of a block are in the same slab.
// Elements of matrices have no names, so sums of values go through workgroup memory to be rescaled. This is rare: weights are relative to
// a score that only rises when a larger one exceeds it by more than {{ tolerance }}, e^{{ tolerance }} times a weight of 1.
// (Control flow around matrices is uniform in the workgroup: workgroupUniformLoad says whether any row rescales.)
{% import "schedules/attention_last" as ends with context %}
{% set element_type = matrices.component %}
{% set unit_type = "vec4<%s>" % element_type %}
{% set weigh = "rounded_weight_of" if element_type == "f16" else "weight_of" %}
{% set quads = block // 4 %}
{% set own_quads = quads // sharing %}
{% set exchanging = [sharing, launch.subgroup] | min %}
{% set weight_parts = across if splits_keys else 1 %}
{% set part_keys = block // weight_parts %}
{% set weights_stride = part_keys + padding %}
{% set key_stride = head_padded + padding %}
{% set own_key_count = block // across %}
{% set own_columns = columns_padded // (across // weight_parts) %}
{% set value_stride = (part_keys if turns else own_columns) + padding %}
{% set own_slab = "slab[part]" if across > 1 else "slab[0]" %}
{% set key_matrices = block // matrices.columns // across %}
{% set head_matrices = head_padded // matrices.steps %}
{% set value_matrices = own_columns // matrices.columns %}
{% set weight_matrices = part_keys // matrices.steps %}
{% set own_weights = "quarter / %du" % across if across > weight_parts else "quarter" %}
{% set own_keys = "part * %du + " % (block // across) if across > 1 else "" %}
{% set is_crowded = down * head_matrices > 8 %}
{% set is_masked = causal or keys % block != 0 %}
{% macro tasks(count) %}
    # for first_task in range(0, count, launch.workgroup)
    {% if first_task + launch.workgroup > count %}if (me < {{ count - first_task }}u) {% endif %}{
        let task = me{{ " + %du" % first_task if first_task }};
{{ caller() }}
    }
    # endfor
{% endmacro %}
{# Quads of an invocation come first, then those of others that are no neighbors in all subgroups. #}
{% macro quad_at(index) %}own_row * {{ block }}u + (own_row + own_part * {{ own_quads }}u + {{ index % own_quads + index // own_quads * exchanging * own_quads }}u) % {{ quads }}u * 4u{% endmacro %}
{% macro each_sum(first) %}
    # for row in range(down)
    # for column in range(first, [first + key_matrices, value_matrices] | min)
{{ caller(row, column, "(mine + %du) * %du + %s%du" % (row * matrices.rows, block, own_keys, (column - first) * matrices.columns)) }}
    # endfor
    # endfor
{% endmacro %}
alias sum_t = vec4<f32>;
const LOWEST = -3.4028234e38f;
var<workgroup> scores: array<f32, {{ tile_rows * block }}>;
// An array for each subgroup, so that loads of matrices have constant places, and what Dawn checks about them is constant.
var<workgroup> weights: array<array<{{ element_type }}, {{ own_rows * weights_stride }}>, {{ tile_rows // own_rows * weight_parts }}>;
var<workgroup> slab: array<array<{{ element_type }}, {{ [own_key_count * key_stride, own_columns * value_stride if turns else part_keys * value_stride] | max }}>, {{ across }}>;
var<workgroup> votes: atomic<u32>;
# if causal
var<workgroup> most_visible: u32;
# endif
{% include "schedules/attention_weight" %}
# if element_type == "f16"
// A weight that becomes float16: the driver's function has digits enough, but no rules for what is not a normal number.
fn rounded_weight_of(x: f32) -> f16 {
    let size = bitcast<u32>(x) & 0x7fffffffu;
    return f16(select(select(exp(max(x, -87.0)), 0.0, size > 0x42ae0000u), x, size > 0x7f800000u));
}
# endif
# for name in ("query", "key")
fn {{ name }}_piece(start: {{ type_of(name ~ "_at") }}, step: u32) -> {{ unit_type }} {
    # if head_padded > head
    return select({{ unit_type }}(), {{ unit_type }}({{ name }}_step(start, min(step, {{ head - 4 }}u))), step < {{ head }}u);
    # else
    return {{ unit_type }}({{ name }}_step(start, step));
    # endif
}
# endfor
@compute @workgroup_size({{ launch.workgroup }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_invocation_id) place: u32,
    @builtin(subgroup_size) lanes: u32,
) {
    load_sizes();
    // Smaller than a workgroup anyway; drivers that know it drop checks of indices, and load vectors.
    let me = (subgroup * lanes + place) % {{ launch.workgroup }}u;
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let first_row = {{ mod("number", tiles) }} * {{ tile_rows }}u;
    let batch = {{ div("number", tiles) }};
    let quarter = subgroup & 3u;
    let mine = {{ "quarter / %du" % across if across > 1 else "quarter" }} * {{ own_rows }}u;
    # if across > 1
    let part = quarter & {{ across - 1 }}u;
    # endif
    let own_row = me / {{ sharing }}u;
    let own_part = me % {{ sharing }}u;
    let row = min(first_row + own_row, {{ rows - 1 }}u);
    # if is_crowded
    // Mesa composes matrices just before they are used, and needs twice the registers for their elements until then. So queries are
    // used at once: scores that are overwritten.
    let empty = {{ matrix.load("b", "slab[0]", "0u", key_stride, steps_adjacent=true) }};
    var unused = {{ matrix.zero() }};
    # endif
    # for chunk in range(0, head_padded, part_keys)
    # call tasks(tile_rows * quads)
        let own = task / {{ part_keys // 4 }}u;
        let step = task % {{ part_keys // 4 }}u * 4u;
        let piece = query_piece(query_start(batch, min(first_row + {{ "own / %du * %du + own %% %du" % (own_rows * weight_parts, own_rows, own_rows) if weight_parts > 1 else "own" }}, {{ rows - 1 }}u)), {{ "step + %du" % chunk if head_padded >= chunk + part_keys else "min(step + %du, %du)" % (chunk, head_padded - 4) }});
        # for part in "xyzw"
        weights[own / {{ own_rows }}u][own % {{ own_rows }}u * {{ weights_stride }}u + step + {{ loop.index0 }}u] = piece.{{ part }};
        # endfor
    # endcall
    workgroupBarrier();
    # for step in range(chunk, [chunk + part_keys, head_padded] | min, matrices.steps)
    # for part in range(down)
    let q{{ part }}_{{ step // matrices.steps }} = {{ matrix.load("a", "weights[%s]" % own_weights, "%du" % (part * matrices.rows * weights_stride + step - chunk), weights_stride, steps_adjacent=true) }};
    # if is_crowded
    unused = {{ matrix.multiply_add("q%d_%d" % (part, step // matrices.steps), "empty", "unused") }};
    # endif
    # endfor
    # endfor
    workgroupBarrier();
    # endfor
    # if is_crowded
    {{ matrix.store("unused", "scores", "mine * %du" % block, block) }};
    # endif
    # for part in range(down)
    # for column in range(value_matrices)
    var sum{{ part }}_{{ column }} = {{ matrix.zero() }};
    # endfor
    # endfor
    var top = LOWEST;
    var mass = 0.0;
    # if causal
    let visible = visible_load(visible_place(batch, row));
    # endif
    let first = 0u;
{{ ends.last_key("first_row", tile_rows) }}
    for (var start = first; start < last; start += {{ block }}u) {
        if (me == 0u) { atomicStore(&votes, 0u); }
        # call tasks(block * head_padded // 4)
        let own = task / {{ head_padded // 4 }}u;
        let step = task % {{ head_padded // 4 }}u * 4u;
        let piece = key_piece(key_start(batch, {{ "min(start + own, last - 1u)" if is_masked else "start + own" }}), step);
        # for part in "xyzw"
        slab[own / {{ own_key_count }}u][own % {{ own_key_count }}u * {{ key_stride }}u + step + {{ loop.index0 }}u] = piece.{{ part }};
        # endfor
        # endcall
        workgroupBarrier();
        # for column in range(key_matrices)
        {
            # for part in range(down)
            var score{{ part }} = {{ matrix.zero() }};
            # endfor
            # for step in range(head_matrices)
            let k{{ step }} = {{ matrix.load("b", own_slab, "%du" % (column * matrices.columns * key_stride + step * matrices.steps), key_stride, steps_adjacent=true) }};
            # for part in range(down)
            score{{ part }} = {{ matrix.multiply_add("q%d_%d" % (part, step), "k%d" % step, "score%d" % part) }};
            # endfor
            # endfor
            # for part in range(down)
            {{ matrix.store("score%d" % part, "scores", "(mine + %du) * %du + %s%du" % (part * matrices.rows, block, own_keys, column * matrices.columns), block) }};
            # endfor
        }
        # endfor
        workgroupBarrier();
        # call tasks(block * columns_padded // 4)
        # if turns
        let own = task % {{ block }}u;
        let unit = task / {{ block }}u;
        # else
        let own = task / {{ columns_padded // 4 }}u;
        let unit = task % {{ columns_padded // 4 }}u;
        # endif
        let key = start + own;
        var at = value_place(batch, {{ "min(key, last - 1u)" if is_masked else "key" }});
        at[3] = min(unit, {{ units - 1 }}u);
        let column = unit % {{ own_columns // 4 }}u * 4u;
        // 0 times what lies behind the last one may be NaN.
        let piece = {{ "select(%s(), %s(value_load(at)), key < last)" % (unit_type, unit_type) if is_masked else unit_type ~ "(value_load(at))" }};
        # for part in "xyzw"
        # set own_key = "own %% %du" % part_keys if weight_parts > 1 else "own"
        slab[{{ "own / %du" % part_keys if weight_parts > 1 else "unit / %du" % (own_columns // 4) }}][{{ "(column + %du) * %du + %s" % (loop.index0, value_stride, own_key) if turns else "%s * %du + column + %du" % (own_key, value_stride, loop.index0) }}] = piece.{{ part }};
        # endfor
        # endcall
        var highest = LOWEST;
        # for index in range(quads // exchanging - 1, -1, -1)
        let quad{{ index }} = {{ quad_at(index) }};
        # set parts = "xyzw"
        var score{{ index }} = sum_t({% for lane in range(4) %}scores[quad{{ index }} + {{ lane }}u]{{ ", " if not loop.last }}{% endfor %});
        # if is_masked or not is_plain
        let key{{ index }} = vec4<u32>(start + quad{{ index }} % {{ block }}u) + vec4<u32>(0u, 1u, 2u, 3u);
        # endif
        score{{ index }} = sum_t(
            # for part in "xyzw"
            # set key = "key%d.%s" % (index, part)
            score_finish({{ type_of("score_output_at") ~ "()" if is_plain else "score_output_place(batch, row, %s)" % ("min(%s, last - 1u)" % key if is_masked else key) }}, score{{ index }}.{{ part }}),
            # endfor
        );
        # if is_masked
        let seen{{ index }} = key{{ index }} < vec4<u32>({{ "min(last, visible)" if causal else "last" }});
        score{{ index }} = select(sum_t(LOWEST), score{{ index }}, seen{{ index }});
        # endif
        highest = max(highest, max(max(score{{ index }}.x, score{{ index }}.y), max(score{{ index }}.z, score{{ index }}.w)));
        # endfor
        # for distance in (1, 2, 4, 8) if distance < exchanging
        highest = max(highest, subgroupShuffleXor(highest, {{ distance }}u));
        # endfor
        var shrink = 1.0;
        if (highest > top + {{ tolerance }}.0) {
            shrink = weight_of(top - highest);
            top = highest;
            atomicOr(&votes, 1u);
        }
        mass *= shrink;
        # for index in range(own_quads)
        {
            # for part in "xyzw"
            # set weight = "%s(score%d.%s - top)" % (weigh, index, part)
            let weight_{{ part }} = {{ "select(%s(), %s, seen%d.%s)" % (element_type, weight, index, part) if is_masked else weight }};
            # endfor
            mass += (f32(weight_x) + f32(weight_y)) + (f32(weight_z) + f32(weight_w));
            let at = own_row % {{ own_rows }}u * {{ weights_stride }}u + quad{{ index }} % {{ part_keys }}u;
            # for part in "xyzw"
            weights[own_row / {{ own_rows }}u{{ " * %du + quad%d %% %du / %du" % (weight_parts, index, block, part_keys) if weight_parts > 1 }}][at + {{ loop.index0 }}u] = weight_{{ part }};
            # endfor
        }
        # endfor
        if (workgroupUniformLoad(&votes) != 0u && start > first) {
            # for column in range(0, value_matrices, key_matrices)
            # call(part, number, place) each_sum(column)
            {{ matrix.store("sum%d_%d" % (part, number), "scores", place, block) }};
            # endcall
            workgroupBarrier();
            # for index in range(own_quads)
            # for lane in range(4)
            scores[quad{{ index }} + {{ lane }}u] *= shrink;
            # endfor
            # endfor
            workgroupBarrier();
            # call(part, number, place) each_sum(column)
            sum{{ part }}_{{ number }} = {{ matrix.load_sums("scores", place, block) }};
            # endcall
            workgroupBarrier();
            # endfor
        }
        # for step in range(weight_matrices)
        {
            # for part in range(down)
            let w{{ part }} = {{ matrix.load("a", "weights[%s]" % own_weights, "%du" % (part * matrices.rows * weights_stride + step * matrices.steps), weights_stride, steps_adjacent=true) }};
            # endfor
            # for column in range(value_matrices)
            # set place = column * matrices.columns * value_stride + step * matrices.steps if turns else step * matrices.steps * value_stride + column * matrices.columns
            let v{{ column }} = {{ matrix.load("b", own_slab, "%du" % place, value_stride, steps_adjacent=turns) }};
            # for part in range(down)
            sum{{ part }}_{{ column }} = {{ matrix.multiply_add("w%d" % part, "v%d" % column, "sum%d_%d" % (part, column)) }};
            # endfor
            # endfor
        }
        # endfor
        workgroupBarrier();
    }
    # if sharing > 1
    scores[me] = mass;
    workgroupBarrier();
    mass = {% for part in range(sharing) %}scores[own_row * {{ sharing }}u + {{ part }}u]{{ " + " if not loop.last }}{% endfor %};
    workgroupBarrier();
    # endif
    # for column in range(0, value_matrices, key_matrices)
    # call(part, number, place) each_sum(column)
    {{ matrix.store("sum%d_%d" % (part, number), "scores", place, block) }};
    # endcall
    workgroupBarrier();
    # if weight_parts > 1
    # set result_quads = quads // weight_parts
    # for index in range(result_quads // sharing)
    {
        let place = (own_row + own_part * {{ result_quads // sharing }}u + {{ index }}u) % {{ result_quads }}u;
        let quad = own_row * {{ block }}u + place * 4u;
        let unit = place + {{ column * matrices.columns // 4 }}u;
        let sums = {% for part in range(weight_parts) %}sum_t({% for lane in range(4) %}scores[quad + {{ part * part_keys + lane }}u]{{ ", " if not loop.last }}{% endfor %}){{ " + " if not loop.last }}{% endfor %};
        {% if (value_matrices - column) < key_matrices %}if (unit < {{ own_columns // 4 }}u) { {% endif %}keep(0u, batch, first_row + own_row, unit, sums / mass);{% if (value_matrices - column) < key_matrices %} }{% endif %}
    }
    # endfor
    # else
    # for index in range(own_quads)
    {
        let quad = {{ quad_at(index) }};
        # if across > 1
        let own_unit = quad % {{ block // across }}u / 4u + {{ column * matrices.columns // 4 }}u;
        let unit = own_unit + quad % {{ block }}u / {{ block // across }}u * {{ own_columns // 4 }}u;
        # else
        let unit = quad % {{ block }}u / 4u + {{ column * matrices.columns // 4 }}u;
        # endif
        let sums = sum_t({% for lane in range(4) %}scores[quad + {{ lane }}u]{{ ", " if not loop.last }}{% endfor %});
        {% if (value_matrices - column) < key_matrices %}if ({{ "own_unit" if across > 1 else "unit" }} < {{ own_columns // 4 }}u) { {% endif %}keep(0u, batch, first_row + own_row, unit, sums / mass);{% if (value_matrices - column) < key_matrices %} }{% endif %}
    }
    # endfor
    # endif
    workgroupBarrier();
    # endfor
}
