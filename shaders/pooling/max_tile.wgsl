// MAX_POOLING2, for a tile of positions, on the bits of the elements: output = the bits that rank first in the window, the first of
// equal ranks. NaN ranks before padding, so a window of nothing else gives its first; integers have no rank to spare for padding,
// but the only one that shares it is known. Places before the input wrap around to large numbers, as in depth-wise convolution.
{% import "convolution/seen" as seen with context %}
{% set row_at = spatial + looped|length %}
{% set column_at = row_at + 1 if down else row_at %}
{% set rows = down.tile if down else 1 %}
{% macro read(inside) %}
    # for unit in across.units
    var rank{{ loop.index0 }} = input_t(0xffffffffu);
    # endfor
{{ seen.read(across, column_at, inside, also="rank# = ranks(seen#);") }}
{% endmacro %}
{% macro choose() %}
    # for column in range(across.tile)
    # for place in range(across.axis.size)
    # set value = seen.name(across, across.element(column, place))
    # set rank = "rank" ~ value[4:]
    # if loop.first
    var largest{{ column }} = {{ value }};
    var best{{ column }} = {{ rank }};
    # else
    largest{{ column }} = select(largest{{ column }}, {{ value }}, {{ rank }} < best{{ column }});
    best{{ column }} = min(best{{ column }}, {{ rank }});
    # endif
    # endfor
    # endfor
{% endmacro %}
{% macro merge(row) %}
    # for column in range(across.tile)
    largest{{ row }}_{{ column }} = select(largest{{ row }}_{{ column }}, largest{{ column }}, best{{ column }} < best{{ row }}_{{ column }});
    best{{ row }}_{{ column }} = min(best{{ row }}_{{ column }}, best{{ column }});
    # endfor
{% endmacro %}
fn rank(bits: u32) -> u32 {
    # if elements.is_float
    return descending_f32({{ "bitcast<f32>(bits)" if elements.bits == 32 else "f32_of_half(bits)" }});
    # elif elements.is_signed
    return descending_i32(extractBits(bitcast<i32>(bits), 0u, {{ elements.bits }}u));
    # else
    return descending_u32(bits);
    # endif
}
fn ranks(bits: input_t) -> input_t {
    return {% if input.lanes == 1 %}rank(bits){% else %}input_t({% for lane in "xyzw"[:input.lanes] %}{{ ", " if not loop.first }}rank(bits.{{ lane }}){% endfor %}){% endif %};
}
fn tile(at: output_at) -> array<tile_s, {{ rows * across.tile }}> {
    var source: input_at;
    source[0] = at[0];
    source[1] = at[1];
    let first_column = at[{{ column_at }}] * {{ across.axis.stride }}u / {{ across.lanes }}u;
    # for row in range(rows)
    # for column in range(across.tile)
    var best{{ row }}_{{ column }} = 0xffffffffu;
    var largest{{ row }}_{{ column }} = {{ 2 ** (elements.bits - 1) if elements.is_signed and not elements.is_float else 0 }}u;
    # endfor
    # endfor
    # set inside = []
    # for axis in looped
    # set number, here = loop.index0, spatial + loop.index0
    for (var place{{ number }} = 0u; place{{ number }} < {{ axis.size }}u + opaque_zero(); place{{ number }}++) {
    source[{{ here }}] = at[{{ here }}] * {{ axis.stride }}u + place{{ number }} * {{ axis.dilation }}u - {{ axis.start % 2 ** 32 }}u;
    let inside{{ number }} = source[{{ here }}] < {{ axis.spatial }}u;
    # set _ = inside.append("inside%d" % number)
    # endfor
    # if down
    # for element in down.seen
    {
    source[{{ row_at }}] = at[{{ row_at }}] * {{ down.axis.stride }}u + {{ (element - down.axis.start) % 2 ** 32 }}u;
    # set checks = ["source[" ~ row_at ~ "] < " ~ down.axis.spatial ~ "u"] if down.is_checked(element - down.axis.start) else []
{{ read(inside + checks) }}
{{ choose() }}
    # for row, _ in down.uses(element)
{{ merge(row) }}
    # endfor
    }
    # endfor
    # else
{{ read(inside) }}
{{ choose() }}
{{ merge(0) }}
    # endif
    # for axis in looped
    }
    # endfor
    return array<tile_s, {{ rows * across.tile }}>({% for row in range(rows) %}{% for column in range(across.tile) %}largest{{ row }}_{{ column }}{% if not loop.last %}, {% endif %}{% endfor %}{% if not loop.last %}, {% endif %}{% endfor %});
}
