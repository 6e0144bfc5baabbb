// Reads one unit of a tensor in memory.
{% include "access/types" %}
{% include "access/place" %}
fn {{ name }}_load(at: {{ type_of(name ~ "_at") }}) -> {{ name }}_t {
    let unit = {{ name }}_unit(at);
    # if unit_bits < 32
    let word = {{ buffer.load }}({{ name }}_base() + unit / {{ 32 // unit_bits }}u);
    let shift = (unit % {{ 32 // unit_bits }}u) * {{ unit_bits }}u;
    # else
    let word = {{ buffer.load }}({{ name }}_base() + unit);
    # endif
    return {{ decoded }};
}
