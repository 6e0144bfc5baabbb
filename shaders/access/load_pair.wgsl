// Reads two adjacent units of a tensor in memory at once; the first of them has an even index.
{% include "access/types" %}
{% include "access/place" %}
alias {{ name }}_pair_t = array<{{ name }}_t, 2>;
fn {{ name }}_of(doubles: vec2<u64>) -> {{ name }}_t {
    let word = vec4<u32>(u32(doubles.x & 4294967295lu), u32(doubles.x >> 32u), u32(doubles.y & 4294967295lu), u32(doubles.y >> 32u));
    return {{ decoded }};
}
fn {{ name }}_load(at: {{ name }}_at) -> {{ name }}_pair_t {
    let pair = buffer{{ slot }}[({{ name }}_base() + {{ name }}_unit(at)) / 2u];
    return {{ name }}_pair_t({{ name }}_of(pair.xy), {{ name }}_of(pair.zw));
}
