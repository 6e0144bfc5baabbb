// CONVOLUTION, Winograd: At sums A of one tile of outputs.
# if side_by_side > 1
// {{ side_by_side }} tiles side by side at once, one in each lane.
# endif
{% import "convolution/combine" as transform with context %}
{% set side = rows|length + 2 %}
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
    # if side_by_side > 1
{{ transform.all_beside(rows) }}
    # else
{{ transform.all(rows) }}
    # endif
}
