// CONVOLUTION, depth-wise: output[n, g, o, position..] = sum over place.. of input[n, g, 0, seen..] * taps[g, o, 0, place..] for a tile of
// positions. Places before the input wrap around to large numbers, so that one comparison finds both ends; there 0 is seen.
{% import "convolution/seen" as seen with context %}
{% set row_at = spatial + looped|length %}
{% set column_at = row_at + 1 if down else row_at %}
{% set rows = down.tile if down else 1 %}
{% import "convolution/taps" as taps with context %}
fn tile(at: output_at) -> array<tile_s, {{ rows * across.tile }}> {
# set tap_rows = down.axis.size if down else 1
{% include "convolution/depthwise_place" %}
{{ taps.first_column() }}
    # for row in range(rows)
    # for column in range(across.tile)
    var sum{{ row }}_{{ column }} = tile_s();
    # endfor
    # endfor
    # set inside = []
    # for axis in looped
    # set number, here = loop.index0, spatial + loop.index0
    for (var place{{ number }} = 0u; place{{ number }} < {{ axis.size }}u + opaque_zero(); place{{ number }}++) {
    taps_place[{{ here }}] = place{{ number }};
    source[{{ here }}] = at[{{ here }}] * {{ axis.stride }}u + place{{ number }} * {{ axis.dilation }}u - {{ axis.start % 2 ** 32 }}u;
    let inside{{ number }} = source[{{ here }}] < {{ axis.spatial }}u;
    # set _ = inside.append("inside%d" % number)
    # endfor
    # if down
    # for place in range(down.axis.size)
    # if not in_units
    taps_place[{{ row_at }}] = {{ place }}u;
    # endif
{{ taps.load_taps(place) }}
    # endfor
    # for element in down.seen
    {
    source[{{ row_at }}] = at[{{ row_at }}] * {{ down.axis.stride }}u + {{ (element - down.axis.start) % 2 ** 32 }}u;
    # set checks = ["source[" ~ row_at ~ "] < " ~ down.axis.spatial ~ "u"] if down.is_checked(element - down.axis.start) else []
{{ seen.read(across, column_at, inside + checks) }}
    # for row, place in down.uses(element)
{{ taps.add("sum%d" % row, place) }}
    # endfor
    }
    # endfor
    # else
{{ taps.load_taps(0) }}
{{ seen.read(across, column_at, inside) }}
{{ taps.add("sum0", 0) }}
    # endif
    # for axis in looped
    }
    # endfor
    return array<tile_s, {{ rows * across.tile }}>({% for row in range(rows) %}{% for column in range(across.tile) %}sum{{ row }}_{{ column }}{% if not loop.last %}, {% endif %}{% endfor %}{% if not loop.last %}, {% endif %}{% endfor %});
}
