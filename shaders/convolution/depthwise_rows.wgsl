// CONVOLUTION, depth-wise, rows one after another: as depthwise.wgsl, in a loop. Each turn reads the rows of the input that the next row of
// positions begins to see, and adds them to all rows of positions that see them: next0 is the sum of the row that begins. The row that
// has seen all is kept, the others move up. Large windows skip the rows that begin before the first or after the last.
{% import "convolution/seen" as seen with context %}
{% set row_at, column_at = spatial, spatial + 1 %}
{% import "convolution/taps" as taps with context %}
{% set active = (down.size + down.stride - 1) // down.stride %}
fn tile(at: output_at) {
# set tap_rows = down.size
{% include "convolution/depthwise_place" %}
    # if not in_units
    # for place in range(down.size)
    taps_place[{{ row_at }}] = {{ place }}u;
{{ taps.load_taps(place) }}
    # endfor
    # endif
{{ taps.first_column() }}
    # for row in range(active - 1)
    # for column in range(across.tile)
    var sum{{ row }}_{{ column }} = tile_s();
    # endfor
    # endfor
    for (var turn = 0u; turn < {{ steps }}u + opaque_zero(); turn++) {
    # for row in range(active)
    # for column in range(across.tile)
    var next{{ row }}_{{ column }} = {% if row %}sum{{ row - 1 }}_{{ column }}{% else %}tile_s(){% endif %};
    # endfor
    # endfor
    # for step in range(down.stride)
    {
    source[{{ row_at }}] = (at[{{ row_at }}] + turn) * {{ down.stride }}u + {{ (step - down.start) % 2 ** 32 }}u;
{{ seen.read(across, column_at, ["source[%d] < %su" % (row_at, down.spatial)]) }}
    # for row in range(active)
    # if row * down.stride + step < down.size
    {% if active > 3 %}if (turn - {{ row }}u < {{ steps - active + 1 }}u) {% endif %}{
{{ taps.add("next%d" % row, row * down.stride + step) }}
    }
    # endif
    # endfor
    }
    # endfor
    if (turn >= {{ active - 1 }}u) {
        var row = at;
        row[{{ row_at }}] += turn - {{ active - 1 }}u;
        keep_row(row, array<tile_s, {{ across.tile }}>({% for column in range(across.tile) %}next{{ active - 1 }}_{{ column }}{% if not loop.last %}, {% endif %}{% endfor %}));
    }
    # for row in range(active - 1)
    # for column in range(across.tile)
    sum{{ row }}_{{ column }} = next{{ row }}_{{ column }};
    # endfor
    # endfor
    }
}
