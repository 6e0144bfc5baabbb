// Quantized product, by panels: an invocation multiplies {{ tile.rows }} rows by {{ tile.units * 4 }} columns, {{ words }} words of each in a turn.
# if dequantizes
// Columns are dequantized before many rows multiply them.
# else
// Scale and center of a column apply to the sum of a turn.
# endif
# if sharing > 1
// Invocations read different units of the rows, and broadcast them.
# endif
// (The ends of the loops are opaque: some compilers unroll loops of known length, for half a minute. They are at the bottom: llvmpipe runs
// the body of a loop that ends at its top once more, with no lane active.)
{% set interleaved, chunk, between, in_float16, in_memory = 1, 1, 1, false, false %}
{% import "schedules/gemm_macros" as gemm with context %}
# set row_units = words * in_word // 4
# set all_units = tile.rows * row_units
# set masks = bits == 4 and not dequantizes
# set centered = has_zero or center != 0
# set sums_rows = centered and not dequantizes
{% macro of_unit(name, stem, unit) %}{% if pieces[name] == 4 %}vec4({{ stem }}{{ 2 * unit }}, {{ stem }}{{ 2 * unit + 1 }}){% else %}{{ stem }}{{ unit }}{% endif %}{% endmacro %}
{% macro broadcast(name, unit) %}{% if sharing > 1 %}subgroupBroadcast({{ name }}{{ unit // sharing * sharing }}, {{ unit % sharing }}u){% else %}{{ name }}{{ unit }}{% endif %}{% endmacro %}
{% macro read_columns(names) %}
        # for half in range(sums)
        # set panel_of_half = "panel" ~ (" + %du" % (half * panels) if half)
        # for name in names
        # for word in range(words if name == "words" else 1)
        # for piece in range(pieces[name])
        let {{ name }}{{ "%d_" % word if name == "words" }}{{ half * pieces[name] + piece }} = {{ name }}_read(batch, {{ panel_of_half }}, block, {{ "turn * %du + %du" % (words, word) if name == "words" else "0u" }}, {{ piece }}u, panel_lane);
        # endfor
        # endfor
        # endfor
        # endfor
{% endmacro %}
fn a_read(batch: u32, row: u32, block: u32, unit: u32) -> a_t {
    var at: a_at;
    # for digit in batch_digits + row_digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    at[{{ a_inner }}] = block;
    at[{{ a_inner + 1 }}] = unit;
    return a_load(at);
}
# for name in pieces
# set lead = batch_digits|length
fn {{ name }}_read(batch: u32, panel: u32, block: u32, word: u32, piece: u32, lane: u32) -> {{ type_of(name ~ "_t") }} {
    var at: {{ type_of(name ~ "_at") }};
    # for digit in batch_digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    at[{{ lead }}] = panel;
    at[{{ lead + 1 }}] = block;
    # if name == "words"
    at[{{ lead + 2 }}] = word;
    # endif
    # set last = lead + (3 if name == "words" else 2)
    at[{{ last }}] = piece;
    at[{{ last + 1 }}] = lane;
    return {{ name }}_load(at);
}
# endfor
alias sum_t = vec4<f32>;
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32{{ ", @builtin(subgroup_invocation_id) lane: u32" if sharing > 1 }}) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let rest = {{ div("number", column_tiles) }};
    let part = 0u;
    let batch = {{ div("rest", row_tiles) }};
    let row = {{ mod("rest", row_tiles) }} * {{ tile.rows }}u;
    let own_panel = {{ mod("number", column_tiles) }} * {{ tile.across }}u + me;
    # if lanes_of_panel > 1
    let panel = min(own_panel / {{ lanes_of_panel }}u, {{ panels - 1 }}u);
    let panel_lane = own_panel % {{ lanes_of_panel }}u;
    # else
    let panel = min(own_panel, {{ panels - 1 }}u);
    let panel_lane = 0u;
    # endif
    let column = own_panel * 2u;
    # for first in range(0, all_units, sharing)
    # set place = "%du + lane" % first if sharing > 1 else "%du" % first
    let a_row{{ first }} = min(row + ({{ place }}) / {{ row_units }}u, {{ rows - 1 }}u);
    let a_unit{{ first }} = ({{ place }}) % {{ row_units }}u;
    # if masks
    // Integers stay at their place in a word, so the elements of rows are divided by powers of two.
    let a_factor{{ first }} = select(vec4<f32>(1.0, 0.0625, 0.00390625, 0.000244140625), vec4<f32>(1.52587890625e-5, 9.5367431640625e-7, 5.9604644775390625e-8, 5.9604644775390625e-8), a_unit{{ first }} % 2u == 1u);
    # endif
    # endfor
{{ gemm.sums("total") }}
    var block = 0u;
    loop {
{{ read_columns(["scale", "zero"] if has_zero else ["scale"]) }}
        # if centered
        # for unit in range(tile.units)
        let center{{ unit }} = {{ "vec4<f32>(%s) + " % of_unit("zero", "zero", unit) if has_zero }}vec4<f32>({{ center|f32 }});
        # endfor
        # endif
        # if turns > 1
        var turn = 0u;
        loop {
        # else
        let turn = 0u;
        # endif
        # for first in range(0, all_units, sharing)
        let a_own{{ first }} = a_read(batch, a_row{{ first }}, block, turn * {{ row_units }}u + a_unit{{ first }});
        # if sums_rows
        let a_sum{{ first }} = (a_own{{ first }}.x + a_own{{ first }}.y) + (a_own{{ first }}.z + a_own{{ first }}.w);
        # endif
        let a{{ first }} = a_own{{ first }}{{ " * a_factor%d" % first if masks }};
        # endfor
{{ read_columns(["words"]) }}
        # for unit in range(tile.units)
        # for word in range(words)
        let bits{{ word }}_{{ unit }} = {{ of_unit("words", "words%d_" % word, unit) }}{{ " ^ vec4<u32>(%su)" % signs if signs }};
        # for place in range(in_word)
        # set step = word * in_word + place
        # if not masks
        # set up = 32 - bits * (place + 1)
        # set signed = "bitcast<vec4<i32>>(bits%d_%d%s) >> vec4<u32>(%du)" % (word, unit, " << vec4<u32>(%du)" % up if up else "", 32 - bits)
        # set unsigned = "bitcast<vec4<i32>>((bits%d_%d >> vec4<u32>(%du)) & vec4<u32>(%du))" % (word, unit, bits * place, 2 ** bits - 1)
        # set integers = "vec4<f32>(%s)" % (unsigned if bits == 4 else signed)
        let b{{ step }}_{{ unit }} = {{ integers if not dequantizes else "(%s%s) * %s" % (integers, " - center%d" % unit if centered else "", of_unit("scale", "scale", unit)) }};
        # elif place == in_word - 1
        let b{{ step }}_{{ unit }} = vec4<f32>(bitcast<vec4<i32>>((bits{{ word }}_{{ unit }} >> vec4<u32>(4u)) & vec4<u32>(0xf000000u)));
        # else
        let b{{ step }}_{{ unit }} = vec4<f32>(bitcast<vec4<i32>>(bits{{ word }}_{{ unit }} & vec4<u32>({{ "0xf" ~ "0" * place }}u)));
        # endif
        # endfor
        # endfor
        # endfor
        # for row in range(tile.rows)
        # for unit in range(row_units)
        let x{{ row }}_{{ unit }} = {{ broadcast("a", row * row_units + unit) }};
        # endfor
        # if sums_rows
        let x_sum{{ row }} = {% for unit in range(row_units) %}{{ " + " if unit }}{{ broadcast("a_sum", row * row_units + unit) }}{% endfor %};
        # endif
        # for unit in range(tile.units)
        # if dequantizes
        total{{ row }}_{{ unit }} += {% for step in range(words * in_word) %}{{ " + " if step }}x{{ row }}_{{ step // 4 }}.{{ "xyzw"[step % 4] }} * b{{ step }}_{{ unit }}{% endfor %};
        # else
        var sum{{ row }}_{{ unit }} = {% if centered %}-x_sum{{ row }} * center{{ unit }}{% else %}sum_t(){% endif %};
        # for step in range(words * in_word)
        sum{{ row }}_{{ unit }} += x{{ row }}_{{ step // 4 }}.{{ "xyzw"[step % 4] }} * b{{ step }}_{{ unit }};
        # endfor
        total{{ row }}_{{ unit }} += sum{{ row }}_{{ unit }} * {{ of_unit("scale", "scale", unit) }};
        # endif
        # endfor
        # endfor
        # if turns > 1
            continuing {
                turn++;
                break if turn >= {{ turns }}u + opaque_zero();
            }
        }
        # endif
        continuing {
            block++;
            break if block >= {{ blocks }}u + opaque_zero();
        }
    }
    # if sums == 1
{{ gemm.keep_all(opaque=true) }}
    # else
    var results = array<vec{{ sums }}<f32>, {{ tile.rows * 8 }}>({% for row in range(tile.rows) %}{% for place in range(8) %}{{ ", " if row or place }}vec{{ sums }}<f32>({% for half in range(sums) %}{{ ", " if half }}total{{ row }}_{{ 2 * half + place // 4 }}.{{ "xyzw"[place % 4] }}{% endfor %}){% endfor %}{% endfor %});
    for (var place = 0u; place < {{ tile.rows * 8 }}u + opaque_zero(); place++) {
        keep_one(part, batch, row + place / 8u, own_panel * 8u + place % 8u, results[place]);
    }
    # endif
}
