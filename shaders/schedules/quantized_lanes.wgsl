// Quantized product, by lanes: {{ across }} adjacent invocations read adjacent units of {{ words_of_unit * 32 }} bits of a column, {{ columns * parts }} columns
// sequentially, and multiply the integers in them by {{ rows }} rows{{ " of integers, four at a time" if integers }}; {{ down }} such groups lie in a workgroup. A scale multiplies the sum of a unit.
# if sharing > 1
// {{ sharing }} lanes of a subgroup add their sums by shuffling; what is left is added in workgroup memory.
# endif
{% import "schedules/quantized_macros" as quantized with context %}
# set held = columns * parts
# set split = integers and bits == 4 and held > rows
# set shifted = has_zero or split
{% macro row_word(row, four) %}x{{ row }}_{{ four // a_words }}{{ "." ~ "xyzw"[four % a_words] if a_words > 1 }}{% endmacro %}
{% macro row_units(row, column=0) %}
        # for number in range(in_unit // a_lanes)
        # set of_unit = "(batch, %du, block, unit * %du + %du)" % (row, in_unit // a_lanes, number)
        # if norm
        let read{{ row }}_{{ number }} = a_read{{ of_unit }};
        let x{{ row }}_{{ number }} = read{{ row }}_{{ number }}{{ " * gain_read" ~ of_unit if norm.gain }};
        # else
        let x{{ row }}_{{ number }} = a_read{{ of_unit }};
        # endif
        # endfor
        # if norm and column == 0
        # for number in range(in_unit // a_lanes)
        squares{{ row }} += dot(read{{ row }}_{{ number }}, read{{ row }}_{{ number }});
        # endfor
        # endif
        # if integers
        # for four in range(in_unit // 4)
        # set first = four // 2 * 2
        # set shift = " >> 8u" if four % 2 else ""
        let y{{ row }}_{{ four }} = {{ "even_bytes(%s%s, %s%s)" % (row_word(row, first), shift, row_word(row, first + 1), shift) if split else row_word(row, four) }};
        # endfor
        let row_scale{{ row }} = a_scale_read(batch, {{ row }}u, block, 0u);
        # if shifted
        # for four in range(in_unit // 4)
        {{ "var row_sum%d =" % row if four == 0 else "row_sum%d +=" % row }} dot4I8Packed(y{{ row }}_{{ four }}, 0x1010101u);
        # endfor
        # endif
        # endif
{% endmacro %}
{% macro factor(squares) %}1.0 / sqrt({{ squares }} / {{ norm.count|f32 }} + {{ norm.epsilon }}){% endmacro %}
# set left = across // sharing
# set outputs = rows * held
# if left > 1
var<workgroup> partials: array<f32, {{ down * outputs * left }}>;
# if norm
var<workgroup> partial_squares: array<f32, {{ down * rows * left }}>;
# endif
# endif
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let batch = {{ div("number", column_tiles) }};
    # if selected
    matrix = matrix_of(batch);
    # endif
    let lane = me % {{ across }}u;
    let first = ({{ mod("number", column_tiles) }} * {{ down }}u + me / {{ across }}u) * {{ columns }}u;
    # if ranges
    // Two adjacent columns, and two more: their partners, or the next pair of partners that are adjacent.
    let pair = min(first, {{ all_columns }}u - 2u);
    let b_first = pair + {{ div("pair", apart) }} * {{ apart }}u;
    # for column in range(held)
    let b_column{{ column }} = b_first + {{ column % columns }}u{% if column >= columns %} + {{ distance }}u{% endif %};
    # endfor
    # else
    # for column in range(held)
    let b_column{{ column }} = min(first + {{ column % columns }}u, {{ all_columns - 1 }}u){{ " + %du" % (column // columns * all_columns) if column >= columns }};
    # endfor
    # endif
    # for row in range(rows)
    # for column in range(held)
    var total{{ row }}_{{ column }} = 0.0;
    # endfor
    # if norm
    var squares{{ row }} = 0.0;
    # endif
    # endfor
    for (var place = lane; place < {{ blocks * units }}u; place += {{ across }}u) {
        let block = place{{ " / %du" % units if units > 1 }};
        let unit = {{ "place %% %du" % units if units > 1 else "0u" }};
        # if rows == 1
{{ row_units(0) }}
        # endif
        # for column in range(held)
        {
            let words = words_read(batch, b_column{{ column }}, block, unit);
            let scale = scale_read(batch, b_column{{ column }}, block, 0u);
{{ quantized.zero_point("zero", "b_column%d" % column) }}
            # for number in range(words_of_unit)
            # if integers
{{ quantized.bytes("q%d_" % number, quantized.word("words", number), split) }}
            # else
            let word{{ number }} = bitcast<i32>({{ quantized.signed_word("words", number) }});
            # for four in range(in_word // 4)
            let q{{ number * (in_word // 4) + four }} = {{ "doubled(" if e2m1 }}vec4<f32>({% for place in range(four * 4, four * 4 + 4) %}{{ ", " if not loop.first }}f32(extractBits(word{{ number }}, {{ place * bits }}u, {{ bits }}u)){% endfor %}){{ " - zero" if has_zero }}{{ ")" if e2m1 }};
            # endfor
            # endif
            # endfor
            # for row in range(rows)
            # if rows > 1
            {
{{ row_units(row, column) }}
            # endif
            # if integers
            # for four in range(in_unit // 4)
            {{ "var sum =" if four == 0 else "sum +=" }} dot4I8Packed(q{{ four // (in_word // 4) }}_{{ four % (in_word // 4) }}, y{{ row }}_{{ four }});
            # endfor
            total{{ row }}_{{ column }} = fma({{ "fma(%s, f32(row_sum%d), f32(sum))" % (("-8.0 - zero" if has_zero else "-8.0") if split else "-zero", row) if shifted else "f32(sum)" }}, scale * row_scale{{ row }}, total{{ row }}_{{ column }});
            # else
            # for four in range(in_unit // 4)
            # set x = "x%d_%d" % (row, four) if a_lanes == 4 else "vec4<f32>(x%d_%d, x%d_%d, x%d_%d, x%d_%d)" % (row, 4 * four, row, 4 * four + 1, row, 4 * four + 2, row, 4 * four + 3)
            {{ "var sum = q%d * %s;" % (four, x) if four == 0 else "sum = fma(q%d, %s, sum);" % (four, x) }}
            # endfor
            total{{ row }}_{{ column }} = fma((sum.x + sum.y) + (sum.z + sum.w), scale, total{{ row }}_{{ column }});
            # endif
            # if rows > 1
            }
            # endif
            # endfor
        }
        # endfor
    }
    # for row in range(rows)
    # for column in range(held)
    # for distance in distances
    total{{ row }}_{{ column }} += subgroupShuffleXor(total{{ row }}_{{ column }}, {{ distance }}u);
    # endfor
    # endfor
    # if norm
    # for distance in distances
    squares{{ row }} += subgroupShuffleXor(squares{{ row }}, {{ distance }}u);
    # endfor
    # endif
    # endfor
    # if left > 1
    if (lane % {{ sharing }}u == 0u) {
        let start = me / {{ across }}u * {{ outputs * left }}u + lane / {{ sharing }}u;
        # for row in range(rows)
        # for column in range(held)
        partials[start + {{ (row * held + column) * left }}u] = total{{ row }}_{{ column }};
        # endfor
        # if norm
        partial_squares[(me / {{ across }}u * {{ rows }}u + {{ row }}u) * {{ left }}u + lane / {{ sharing }}u] = squares{{ row }};
        # endif
        # endfor
    }
    workgroupBarrier();
    for (var output = me; output < {{ down * rows * columns }}u; output += {{ launch.workgroup }}u) {
        let row = output / {{ columns }}u;
        # for part in range(held if ranges else parts)
        let start{{ part }} = (row * {{ held }}u + {% if ranges %}{{ part }}u{% else %}{{ part * columns }}u + output % {{ columns }}u{% endif %}) * {{ left }}u;
        var sum{{ part }} = partials[start{{ part }}];
        for (var other = 1u; other < {{ left }}u; other++) { sum{{ part }} += partials[start{{ part }} + other]; }
        # endfor
        # if norm
        var squares = partial_squares[row * {{ left }}u];
        for (var other = 1u; other < {{ left }}u; other++) { squares += partial_squares[row * {{ left }}u + other]; }
        let factor = {{ factor("squares") }};
        # for part in range(held if ranges else parts)
        sum{{ part }} *= factor;
        # endfor
        # endif
        let column = ({{ mod("number", column_tiles) }} * {{ down }}u + row / {{ rows }}u) * {{ columns }}u{% if not ranges %} + output % {{ columns }}u{% endif %};
        # if ranges
        keep_unit(row % {{ rows }}u, column, output % {{ columns }}u, {{ quantized.all("sum") }});
        # else
        keep_one(0u, batch, row % {{ rows }}u, column, {{ quantized.result("sum", 0, 1) }});
        # endif
    }
    # else
    # if norm
    # for row in range(rows)
    let factor{{ row }} = {{ factor("squares%d" % row) }};
    # for column in range(held)
    total{{ row }}_{{ column }} *= factor{{ row }};
    # endfor
    # endfor
    # endif
    # if ranges
    for (var unit = lane; unit < 2u; unit += {{ across }}u) {
        # for row in range(rows)
        keep_unit({{ row }}u, first, unit, {{ quantized.all("total%d_" % row) }});
        # endfor
    }
    # else
    if (lane == 0u) {
        # for row in range(rows)
        # for column in range(columns)
        keep_one(0u, batch, {{ row }}u, first + {{ column }}u, {{ quantized.result("total%d_" % row, column) }});
        # endfor
        # endfor
    }
    # endif
    # endif
}
