// The stages of attention on one block of keys: scores, the largest one of each row so far, weights, the weighted sum of
// the values; and the results from the sums. A vector holds the numbers of several rows.
{% set width = tile.width %}
{% set vectors = tile.rows // width %}
{% set row_parts = (".x .y .z .w".split()[:width] if width > 1 else [""]) %}
{% set rows_t = "vec%d<f32>" % width if width > 1 else "f32" %}
{% macro of_row(name, row) %}{{ name }}{{ row // width }}{{ row_parts[row % width] }}{% endmacro %}
{% macro scores() %}
        # for unit in range(tile.key_units)
        let key_starts{{ unit }} = key_starts(batch, start / 4u + lane + {{ unit * tile.across }}u);
        # for row in range(tile.rows)
        var score{{ row }}_{{ unit }} = vec4<f32>();
        # endfor
        # endfor
        for (var step = 0u; step < {{ head }}u + opaque_zero(); step++) {
            # for unit in range(tile.key_units)
            let k{{ unit }} = key_fetch(key_starts{{ unit }}, step);
            # endfor
            # for vector in range(vectors)
            let q{{ vector }} = query_fetch(query_starts{{ vector }}, step);
            # endfor
            # for row in range(tile.rows)
            # for unit in range(tile.key_units)
            score{{ row }}_{{ unit }} += {{ of_row("q", row) }} * k{{ unit }};
            # endfor
            # endfor
        }
        var scores = array<rows_t, {{ tile.key_units * 4 * vectors }}>(
            # for unit in range(tile.key_units)
            # for part in "xyzw"
            # for vector in range(vectors)
            rows_t({% for row in range(width) %}score{{ vector * width + row }}_{{ unit }}.{{ part }}{{ ", " if not loop.last }}{% endfor %}),
            # endfor
            # endfor
            # endfor
        );
{% endmacro %}
{% macro hold_queries() %}
    # for row in range(tile.rows)
    let query{{ row }} = query_start(batch, min(row + {{ row }}u, {{ rows - 1 }}u));
    # for dot in range(tile.dots)
    let q{{ row }}_{{ dot }} = query_step(query{{ row }}, (lane + {{ dot * tile.across }}u) * 4u);
    # endfor
    # endfor
{% endmacro %}
{% macro dots() %}
        for (var index = 0u; index < count; index++) {
            let key = key_start(batch, start + index);
            # for dot in range(tile.dots)
            let k{{ dot }} = key_step(key, (lane + {{ dot * tile.across }}u) * 4u);
            # endfor
            # for row in range(tile.rows)
            let p{{ row }} = {% for dot in range(tile.dots) %}q{{ row }}_{{ dot }} * k{{ dot }}{{ " + " if not loop.last }}{% endfor %};
            # endfor
            products[line * {{ tile.block * tile.across }}u + index * {{ tile.across }}u + lane] =
                rows_t({% for row in range(width) %}(p{{ row }}.x + p{{ row }}.y) + (p{{ row }}.z + p{{ row }}.w){{ ", " if not loop.last }}{% endfor %});
        }
        workgroupBarrier();
        var scores = array<rows_t, {{ tile.key_units * 4 }}>();
        for (var own = 0u; own < {{ tile.key_units * 4 }}u + opaque_zero(); own++) {
            let index = (lane + (own / 4u) * {{ tile.across }}u) * 4u + own % 4u;
            let first_product = line * {{ tile.block * tile.across }}u + index * {{ tile.across }}u;
            var sum = rows_t();
            for (var other = 0u; other < {{ tile.across }}u + opaque_zero(); other++) { sum += products[first_product + other]; }
            scores[own] = sum;
        }
{% endmacro %}
{% macro each_key() %}
        for (var own = 0u; own < {{ tile.key_units * 4 }}u + opaque_zero(); own++) {
            let index = (lane + (own / 4u) * {{ tile.across }}u) * 4u + own % 4u;
            let key = start + index;
            let place = own * {{ vectors }}u;
            # for vector in range(vectors)
            # if causal
            let seen{{ vector }} = {{ "vec" ~ width ~ "<bool>" if width > 1 else "bool" }}({% for row in range(width) %}key < min(last, visible{{ vector * width + row }}){{ ", " if not loop.last }}{% endfor %});
            # else
            let seen{{ vector }} = key < last;
            # endif
            # endfor
{% endmacro %}
{% macro new_tops() %}
        # for vector in range(vectors)
        let before{{ vector }} = top{{ vector }};
        # endfor
{{ each_key() }}
            # for vector in range(vectors)
            var score{{ vector }} = scores[place + {{ vector }}u];
            # endfor
            # for row in range(tile.rows)
            # set score = of_row("score", row)
            # if is_plain
            {{ score }} = score_finish({{ type_of("score_output_at") }}(), {{ score }});
            # else
            {{ score }} = score_finish(score_output_place(batch, min(row + {{ row }}u, {{ rows - 1 }}u), min(key, last - 1u)), {{ score }});
            # endif
            # endfor
            # for vector in range(vectors)
            score{{ vector }} = select(rows_t(LOWEST), score{{ vector }}, seen{{ vector }});
            top{{ vector }} = max(top{{ vector }}, score{{ vector }});
            scores[place + {{ vector }}u] = score{{ vector }};
            # endfor
        }
        # for vector in range(vectors)
        tops[first_top + lane * {{ vectors }}u + {{ vector }}u] = top{{ vector }};
        # endfor
        workgroupBarrier();
        for (var other = 0u; other < {{ tile.across * vectors }}u + opaque_zero(); other += {{ vectors }}u) {
            # for vector in range(vectors)
            top{{ vector }} = max(top{{ vector }}, tops[first_top + other + {{ vector }}u]);
            # endfor
        }
{% endmacro %}
{% macro weigh() %}
        # for vector in range(vectors)
        let shrink{{ vector }} = exp_rows(before{{ vector }} - top{{ vector }});
        mass{{ vector }} *= shrink{{ vector }};
        # endfor
{{ each_key() }}
            # for vector in range(vectors)
            let weight{{ vector }} = select(rows_t(), exp_rows(scores[place + {{ vector }}u] - top{{ vector }}), seen{{ vector }});
            mass{{ vector }} += weight{{ vector }};
            weights[first_weight + index * {{ vectors }}u + {{ vector }}u] = weight{{ vector }};
            # endfor
        }
        workgroupBarrier();
{% endmacro %}
{% macro sum_values() %}
        # for row in range(tile.rows)
        # for unit in range(tile.units)
        var sum{{ row }}_{{ unit }} = sum_t();
        # endfor
        # endfor
        # for unit in range(tile.units)
        var value_at{{ unit }} = value_place(batch, 0u);
        value_at{{ unit }}[3] = min(column + {{ unit * tile.across }}u, {{ units - 1 }}u);
        # endfor
        for (var index = 0u; index < count; index++) {
            # for vector in range(vectors)
            let w{{ vector }} = weights[first_weight + index * {{ vectors }}u + {{ vector }}u];
            # endfor
            # for unit in range(tile.units)
            value_at{{ unit }}[2] = start + index;
            let v{{ unit }} = value_load(value_at{{ unit }});
            # for row in range(tile.rows)
            sum{{ row }}_{{ unit }} += {{ of_row("w", row) }} * v{{ unit }};
            # endfor
            # endfor
        }
        # for row in range(tile.rows)
        # for unit in range(tile.units)
        total{{ row }}_{{ unit }} = total{{ row }}_{{ unit }} * {{ of_row("shrink", row) }} + sum{{ row }}_{{ unit }};
        # endfor
        # endfor
{% endmacro %}
{% macro masses() %}
    # for vector in range(vectors)
    tops[first_top + lane * {{ vectors }}u + {{ vector }}u] = mass{{ vector }};
    mass{{ vector }} = rows_t();
    # endfor
    workgroupBarrier();
    for (var other = 0u; other < {{ tile.across * vectors }}u + opaque_zero(); other += {{ vectors }}u) {
        # for vector in range(vectors)
        mass{{ vector }} += tops[first_top + other + {{ vector }}u];
        # endfor
    }
{% endmacro %}
{% macro keep_all() %}
    # if parts > 1
    if (column == 0u) {
        # for row in range(tile.rows)
        keep(part, batch, row + {{ row }}u, {{ units }}u, sum_t({{ of_row("top", row) }}, {{ of_row("mass", row) }}, 0.0, 0.0));
        # endfor
    }
    # endif
    var results = array<sum_t, {{ tile.rows * tile.units }}>({% for row in range(tile.rows) %}{% for unit in range(tile.units) %}total{{ row }}_{{ unit }}{% if parts == 1 %} / {{ of_row("mass", row) }}{% endif %}, {% endfor %}{% endfor %});
    for (var place = 0u; place < {{ tile.rows * tile.units }}u + opaque_zero(); place++) {
        let unit_column = column + (place % {{ tile.units }}u) * {{ tile.across }}u;
        # if parts > 1
        if (unit_column < {{ units }}u) { keep(part, batch, row + place / {{ tile.units }}u, unit_column, results[place]); }
        # else
        keep(part, batch, row + place / {{ tile.units }}u, unit_column, results[place]);
        # endif
    }
{% endmacro %}
