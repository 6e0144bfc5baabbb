// CONVOLUTION, Winograd: G filter Gt of one filter and channel. Filters beyond the last are padding, and a copy of it.
{% import "convolution/combine" as transform with context %}
fn tile(at: output_at) -> array<tile_s, {{ rows|length ** 2 }}> {
    var place = taps_at(at[1], min(at[3], {{ outputs - 1 }}u), at[2], 0u, 0u);
    # for down in range(3)
    place[3] = {{ down }}u;
    # for across in range(3)
    place[4] = {{ across }}u;
    let given{{ down }}_{{ across }} = taps_load(place);
    # endfor
    # endfor
{{ transform.both_ways(rows, 3) }}
{{ transform.all(rows) }}
    return transformed;
}
