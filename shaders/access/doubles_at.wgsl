// Reads {{ 2 * count }} adjacent bytes from any offset. Bytes before the tensor's first or after its last one are undefined.
{% include "access/types" %}
{% include "access/place" %}
fn {{ name }}_doubles(at: {{ type_of(name ~ "_at") }}) -> vec2<u64> {
    let unit = {{ name }}_unit(at);
    let shift = (unit % {{ count }}u) * 8u;
    # for double in range(3)
    let double{{ double }} = {{ buffer.load }}({{ name }}_base() + min((unit + {{ double * count }}u) / {{ count }}u, {{ last }}u));
    # endfor
    return vec2<u64>({% for double in range(2) %}{{ ", " if double }}(double{{ double }} >> shift) | select(double{{ double + 1 }} << (64u - shift), 0lu, shift == 0u){% endfor %});
}
