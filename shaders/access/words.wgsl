// The bits of words, the first of which begins with some unit, of units that are contiguous in memory. Bits of units before the
// tensor's first or after its last one are undefined.
# for words in counts
fn {{ name }}_words{{ words }}(at: {{ type_of(name ~ "_at") }}) -> array<u32, {{ words }}> {
    let unit = {{ name }}_unit(at);
    let shift = (unit % {{ count }}u) * {{ 32 // count }}u;
    # for word in range(words + 1)
    let word{{ word }} = {{ buffer.load }}({{ name }}_base() + min((unit + {{ word * count if word < words else word * count - 1 }}u) / {{ count }}u, {{ last }}u));
    # endfor
    return array<u32, {{ words }}>({% for word in range(words) %}{{ ", " if word }}(word{{ word }} >> shift) | select(word{{ word + 1 }} << (32u - shift), 0u, shift == 0u){% endfor %});
}
# endfor
