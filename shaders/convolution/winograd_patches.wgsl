// CONVOLUTION, Winograd: Bt patch B of one patch and channel. Patches beyond the last are padding, and a copy of it.
# if side_by_side > 1
// {{ side_by_side }} patches side by side at once, one in each lane.
# endif
{% import "convolution/seen" as seen with context %}
{% import "convolution/combine" as transform with context %}
fn tile(at: output_at) -> array<tile_s, {{ rows|length ** 2 * side_by_side }}> {
    let number = min(at[3], {{ count - 1 }}u);
    let first_row = {{ mod(div("number", tiles[1]), tiles[0]) }} * {{ down.tile }}u;
    let first_column = {{ mod("number", tiles[1]) }}{{ " / " ~ side_by_side ~ "u" if side_by_side > 1 }} * {{ across.step }}u;
    var source: input_at;
    source[0] = {{ div("number", tiles[0] * tiles[1]) }};
    source[1] = at[1];
    source[2] = at[2];
    # for row in down.seen
    source[3] = first_row + {{ (row - down.axis.start) % 2 ** 32 }}u;
    # set checks = ["source[3] < " ~ down.axis.spatial ~ "u"] if down.is_checked(row - down.axis.start) else []
{{ seen.read(across, 4, checks, "row" ~ row ~ "_") }}
    # for column in range(rows|length)
    # if side_by_side > 1
    let given{{ row }}_{{ column }} = vec4<tile_s>(
        # for patch in range(side_by_side)
        row{{ row }}_{{ seen.name(across, column + patch * down.tile) }},
        # endfor
    );
    # else
    let given{{ row }}_{{ column }} = row{{ row }}_{{ seen.name(across, column) }};
    # endif
    # endfor
    # endfor
{{ transform.both_ways(rows, rows|length) }}
    # if side_by_side > 1
{{ transform.all_lanes(rows) }}
    # else
{{ transform.all(rows) }}
    # endif
}
