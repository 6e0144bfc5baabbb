// CONVOLUTION, Winograd: At sums A of one tile of outputs. Marked ones are summed over their windows instead.
# if side_by_side > 1
// {{ side_by_side }} tiles side by side at once, one in each lane.
# endif
{% import "convolution/combine" as transform with context %}
{% set side = rows|length + 2 %}
{% set down, across = windows %}
fn direct(at: output_at, row: u32, column: u32) -> tile_s {
    var sum = tile_s();
    for (var channel = 0u; channel < {{ channels }}u; channel++) {
        var of_channel = tile_s();
        for (var tap = 0u; tap < {{ down.size * across.size }}u + opaque_zero(); tap++) {
            let tap_row = tap / {{ across.size }}u;
            let tap_column = tap % {{ across.size }}u;
            let source = input_at(at[0], at[1], channel, row + tap_row - {{ down.start % 2 ** 32 }}u, column + tap_column - {{ across.start % 2 ** 32 }}u);
            if (source[3] < {{ down.spatial }}u && source[4] < {{ across.spatial }}u) {
                of_channel += taps_load(taps_at(at[1], at[2], channel, tap_row, tap_column)) * input_load(source);
            }
        }
        sum += of_channel;
    }
    return sum;
}
fn tile(at: output_at) -> array<tile_s, {{ rows|length ** 2 * side_by_side }}> {
    let number = (at[0] * {{ tiles[0] }}u + at[3] / {{ tile }}u) * {{ tiles[1] }}u + at[4] / {{ tile }}u;
    var place = sums_at(0u, at[1], at[2], number{{ " / %du" % side_by_side if side_by_side > 1 }});
    # if looped
{{ transform.no_rows(rows, side, "vec4<tile_s>" if side_by_side > 1 else "tile_s") }}
    for (var turn = 0u; turn < {{ side }}u + opaque_zero(); turn++) {
    # for across in range(side)
    place[0] = turn * {{ side }}u + {{ across }}u;
    let given{{ across }} = sums_load(place);
    # endfor
{{ transform.add_row(rows, side) }}
    }
    # else
    # for down in range(side)
    # for across in range(side)
    place[0] = {{ down * side + across }}u;
    let given{{ down }}_{{ across }} = sums_load(place);
    # endfor
    # endfor
{{ transform.both_ways(rows, side) }}
    # endif
{{ transform.in_lanes(rows, "var") }}
    let marks = {{ "vec4<u32>" if side_by_side > 1 else "u32" }}(marks_load(marks_at(at[1], number{{ " / %du" % side_by_side if side_by_side > 1 }})));
    // llvmpipe runs loops without turns once, but skips this branch.
    if ({{ "any(marks != vec4())" if side_by_side > 1 else "marks != 0u" }}) {
    # if side_by_side > 1
    for (var lane = 0u; lane < {{ side_by_side }}u; lane++) {
    let is_lane = vec4(lane) == vec4(0u, 1u, 2u, 3u);
    var marked = marks[lane];
    # else
    var marked = marks;
    # endif
    while (marked != 0u) {
        let place = countTrailingZeros(marked);
        let sum = direct(at, at[3] + place / {{ tile }}u, at[4] + {{ "lane * %du + " % tile if side_by_side > 1 }}place % {{ tile }}u);
        # for down in range(tile)
        # for across in range(tile)
        # if side_by_side > 1
        number{{ down }}_{{ across }} = select(number{{ down }}_{{ across }}, vec4(sum), is_lane & vec4(place == {{ down * tile + across }}u));
        # else
        number{{ down }}_{{ across }} = select(number{{ down }}_{{ across }}, sum, place == {{ down * tile + across }}u);
        # endif
        # endfor
        # endfor
        marked &= marked - 1u;
    }
    # if side_by_side > 1
    }
    # endif
    }
    # if side_by_side > 1
{{ transform.all_beside(rows) }}
    # else
{{ transform.all_in_order(rows) }}
    # endif
}
