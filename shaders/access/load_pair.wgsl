// Reads two adjacent units of a tensor in memory at once; the first of them has an even index.
{% include "access/types" %}
{% include "access/place" %}
{{ name_type(name ~ "_pair_t", "array<%s_t, 2>" % name) }}
fn {{ name }}_of(doubles: vec2<u64>) -> {{ name }}_t {
    let word = vec4<u32>(u32(doubles.x & 4294967295lu), u32(doubles.x >> 32u), u32(doubles.y & 4294967295lu), u32(doubles.y >> 32u));
    return {{ decoded }};
}
fn {{ name }}_load(at: {{ type_of(name ~ "_at") }}) -> {{ type_of(name ~ "_pair_t") }} {
    let pair = {{ buffer.load }}(({{ name }}_base() + {{ name }}_unit(at)) / 2u);
    return {{ type_of(name ~ "_pair_t") }}({{ name }}_of(pair.xy), {{ name }}_of(pair.zw));
}
