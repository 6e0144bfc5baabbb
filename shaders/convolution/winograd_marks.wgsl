// CONVOLUTION, Winograd: the marks of a tile, from the norms of pixels
{% import "convolution/seen" as seen with context %}
{% import "convolution/marks" as marks with context %}
fn element(at: output_at) -> output_t {
    let first_row = {{ mod(div("at[1]", tiles[1]), tiles[0]) }} * {{ down.tile }}u;
    let first_column = {{ mod("at[1]", tiles[1]) }} * {{ across.step }}u;
    var source: input_at;
    source[0] = {{ div("at[1]", tiles[0] * tiles[1]) }};
    source[1] = at[0];
    # for row in down.seen
    source[2] = first_row + {{ (row - down.axis.start) % 2 ** 32 }}u;
    # set checks = ["source[2] < " ~ down.axis.spatial ~ "u"] if down.is_checked(row - down.axis.start) else []
{{ seen.read(across, 3, checks, "row" ~ row ~ "_") }}
    # for column in down.seen
    let square{{ row }}_{{ column }} = row{{ row }}_{{ seen.name(across, column) }} * row{{ row }}_{{ seen.name(across, column) }};
    # endfor
    # endfor
    let rows = {{ down.axis.positions }}u - first_row;
    let columns = {{ across.axis.positions }}u - first_column;
{{ marks.marked(down.tile, max_spread) }}
    return f32(marks);
}
