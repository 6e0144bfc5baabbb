// CONVOLUTION, Winograd: At sums A of one tile of outputs.
{% import "convolution/combine" as transform with context %}
{% set side = rows|length + 2 %}
fn tile(at: output_at) -> array<tile_s, {{ rows|length ** 2 }}> {
    let number = (at[0] * {{ tiles[0] }}u + at[3] / {{ tile }}u) * {{ tiles[1] }}u + at[4] / {{ tile }}u;
    var place = sums_at(0u, at[1], at[2], number);
    # for down in range(side)
    # for across in range(side)
    place[0] = {{ down * side + across }}u;
    let given{{ down }}_{{ across }} = sums_load(place);
    # endfor
    # endfor
{{ transform.both_ways(rows, side) }}
{{ transform.all(rows) }}
}
