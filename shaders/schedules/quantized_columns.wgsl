// Quantized product, by columns: each of {{ down }} invocations multiplies {{ rows }} rows by {{ columns * parts }} columns, whose integers it takes out of
// words of {{ words_of_unit * 32 }} bits. A scale multiplies the sum of its block.
# if sharing > 1
// Invocations read different elements of a row, and broadcast them.
# endif
// (The end of the loop is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/quantized_macros" as quantized with context %}
# set held = columns * parts
# set sums = [4 // (rows * held), 1]|max
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32{{ ", @builtin(subgroup_invocation_id) lane: u32" if sharing > 1 }}) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let rest = {{ div("number", column_tiles) }};
    let batch = {{ div("rest", row_tiles) }};
    # if selected
    matrix = matrix_of(batch);
    # endif
    # for row in range(rows)
    let row{{ row }} = {{ mod("rest", row_tiles) }} * {{ rows }}u + {{ row }}u;
    let a_row{{ row }} = min(row{{ row }}, {{ all_rows - 1 }}u);
    # endfor
    # for column in range(columns)
    let column{{ column }} = {{ mod("number", column_tiles) }} * {{ columns * down }}u + me + {{ column * down }}u;
    # endfor
    # for column in range(held)
    let b_column{{ column }} = min(column{{ column % columns }}, {{ all_columns - 1 }}u){{ " + %du" % (column // columns * all_columns) if column >= columns }};
    # endfor
    # for row in range(rows)
    # for column in range(held)
    var total{{ row }}_{{ column }} = 0.0;
    # endfor
    # endfor
    for (var block = 0u; block < {{ blocks }}u + opaque_zero(); block++) {
        # for column in range(held)
        # for row in range(rows)
        # for number in range(sums)
        var sum{{ row }}_{{ column }}_{{ number }} = 0.0;
        # endfor
        # endfor
{{ quantized.zero_point("zero%d" % column, "b_column%d" % column) }}
        # endfor
        # if units > 1
        for (var unit = 0u; unit < {{ units }}u + opaque_zero(); unit++) {
        # else
        {
        let unit = 0u;
        # endif
        # for row in range(rows)
        # for first in range(0, in_unit // a_lanes, sharing)
        let x{{ row }}_{{ first }} = a_read(batch, a_row{{ row }}, block, unit * {{ in_unit // a_lanes }}u + {{ first }}u{{ " + lane" if sharing > 1 }});
        # endfor
        # endfor
        # for column in range(held)
        let words{{ column }} = words_read(batch, b_column{{ column }}, block, unit);
        # for number in range(words_of_unit)
        let word{{ column }}_{{ number }} = {{ quantized.signed_word("words%d" % column, number) }};
        # endfor
        # endfor
        # for number in range(words_of_unit)
        # for place in range(in_word)
        # set whole = number * in_word + place
        {
            # for row in range(rows)
            # if sharing > 1
            # set unit = whole // a_lanes
            let x{{ row }} = subgroupBroadcast(x{{ row }}_{{ unit // sharing * sharing }}{{ "." ~ "xyzw"[whole % a_lanes] if a_lanes > 1 }}, {{ unit % sharing }}u);
            # else
            let x{{ row }} = {{ quantized.element("x%d_" % row, whole) }};
            # endif
            # endfor
            # for column in range(held)
            # set up = 32 - bits * (place + 1)
            let q{{ column }} = {{ "doubled" if e2m1 }}(f32(bitcast<i32>(word{{ column }}_{{ number }}{{ " << %du" % up if up }}) >> {{ 32 - bits }}u){{ " - zero%d" % column if has_zero }});
            # for row in range(rows)
            # set name = "sum%d_%d_%d" % (row, column, number % sums)
            {{ name }} = fma(q{{ column }}, x{{ row }}, {{ name }});
            # endfor
            # endfor
        }
        # endfor
        # endfor
        }
        # for column in range(held)
        let scale{{ column }} = scale_read(batch, b_column{{ column }}, block, 0u);
        # for row in range(rows)
        total{{ row }}_{{ column }} = fma({% for number in range(sums) %}{{ " + " if number }}sum{{ row }}_{{ column }}_{{ number }}{% endfor %}, scale{{ column }}, total{{ row }}_{{ column }});
        # endfor
        # endfor
    }
    # for row in range(rows)
    # for column in range(columns)
    keep_one(0u, batch, row{{ row }}, column{{ column }}, {{ quantized.result("total%d_" % row, column) }});
    # endfor
    # endfor
}
