// CONVOLUTION, Winograd: Bt patch B of one patch and channel. Patches beyond the last are padding, and a copy of it.
# if side_by_side > 1
// {{ side_by_side }} patches side by side at once, one in each lane.
# endif
# if with_marks
// The first channel of the output is none of the input: its first element is the marks of the tile.
# endif
# if all_channels
// An invocation transforms all channels, and reads them once for that and for the marks.
# endif
{% import "convolution/seen" as seen with context %}
{% import "convolution/combine" as transform with context %}
{% import "convolution/marks" as marks with context %}
{% macro read_patch() %}
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
{% endmacro %}
{% macro no_squares() %}
    # for row in down.seen
    # for column in down.seen
    var square{{ row }}_{{ column }} = {{ "vec4<tile_s>" if side_by_side > 1 else "tile_s" }}();
    # endfor
    # endfor
{% endmacro %}
{% macro add_squares() %}
    # for row in down.seen
    # for column in down.seen
    square{{ row }}_{{ column }} += given{{ row }}_{{ column }} * given{{ row }}_{{ column }};
    # endfor
    # endfor
{% endmacro %}
{% macro mark() %}
    let rows = {{ down.axis.positions }}u - first_row;
    # if side_by_side > 1
    let columns = {{ across.axis.positions }}u - {{ mod("number", tiles[1]) }} * {{ down.tile }}u - {{ down.tile }}u * vec4(0u, 1u, 2u, 3u);
{{ marks.marked(down.tile, max_spread, "vec4") }}
    # else
    let columns = {{ across.axis.positions }}u - {{ mod("number", tiles[1]) }} * {{ down.tile }}u;
{{ marks.marked(down.tile, max_spread) }}
    # endif
{% endmacro %}
fn tile(at: output_at){{ " -> array<tile_s, %d>" % (rows|length ** 2 * side_by_side) if not all_channels }} {
    let number = min(at[3], {{ count - 1 }}u);
    let first_row = {{ mod(div("number", tiles[1]), tiles[0]) }} * {{ down.tile }}u;
    let first_column = {{ mod("number", tiles[1]) }}{{ " / " ~ side_by_side ~ "u" if side_by_side > 1 }} * {{ across.step }}u;
    var source: input_at;
    source[0] = {{ div("number", tiles[0] * tiles[1]) }};
    source[1] = at[1];
    # if all_channels
{{ no_squares() }}
    var place = at;
    for (var channel = 0u; channel < {{ channels }}u; channel++) {
        source[2] = channel;
{{ read_patch() }}
{{ add_squares() }}
{{ transform.both_ways(rows, rows|length) }}
        # if side_by_side > 1
{{ transform.all_lanes(rows) }}
        # else
{{ transform.all(rows) }}
        # endif
        place[2] = channel + 1u;
        keep_row(place, transformed);
    }
{{ mark() }}
    place[2] = 0u;
    keep_start(place, array<tile_s, {{ side_by_side }}>({% for lane in range(side_by_side) %}tile_s(marks{{ "[%d]" % lane if side_by_side > 1 }}){% if not loop.last %}, {% endif %}{% endfor %}));
    # else
    # if with_marks
    if (at[2] == 0u) {
{{ no_squares() }}
        for (var channel = 0u; channel < {{ channels }}u; channel++) {
            source[2] = channel;
{{ read_patch() }}
{{ add_squares() }}
        }
{{ mark() }}
        var result: array<tile_s, {{ rows|length ** 2 }}>;
        result[0] = tile_s(marks);
        return result;
    }
    # endif
    source[2] = at[2]{{ " - 1u" if with_marks }};
{{ read_patch() }}
{{ transform.both_ways(rows, rows|length) }}
{{ transform.all(rows) }}
    return transformed;
    # endif
}
