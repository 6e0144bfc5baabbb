// Start of every kernel: the parameter block and its storage buffers, one variable per buffer and block width.
struct Params { bases: vec4<u32>, more_bases: vec4<u32>, zero: u32 }
{% if immediates %}
var<immediate> params: Params;
{% else %}
@group(0) @binding({{ buffers|length }}) var<uniform> params: Params;
{% endif %}
# for block in buffers
@group(0) @binding({{ loop.index0 }}) var<storage, read_write> buffer{{ loop.index0 }}: array<{{ block }}>;
# endfor
