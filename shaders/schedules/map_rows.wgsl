// MAP of a copy whose rows share no words, {{ words }} words of a row at a time. Units are contiguous in both tensors, and
// are read as words, from the first unit. Words at the ends of rows are stored in part. (In a loop: some CPU
// drivers execute both branches, but not loops that no invocation enters.)
{% set count = 32 // unit_bits %}
{% include "schedules/locate" %}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    let first = at[{{ run }}] * {{ count * words }}u - {{ first }}u; // before the row's first unit it is a large number
    at[{{ run }}] = 0u;
    let there = output_base() + output_unit(at) / {{ count }}u + (first + {{ first }}u) / {{ count }}u;
    at[{{ run }}] = first;
    let whole = first < {{ [size - count * words + 1, 0]|max }}u;
    if (whole) {
        let bits = input_words{{ words }}(at);
        # for place in range(words)
        {{ buffer.store }}(there + {{ place }}u, bits[{{ place }}]);
        # endfor
    }
    for (var place = select(0u, {{ words }}u, whole); place < {{ words }}u; place++) {
        at[{{ run }}] = first + place * {{ count }}u;
        var own = 0u;
        # for unit in range(count)
        own |= select(0u, {{ (2 ** unit_bits - 1) * 2 ** (unit * unit_bits) }}u, at[{{ run }}] + {{ unit }}u < {{ size }}u);
        # endfor
        if (own == 0u) { continue; }
        var bits = input_words1(at)[0] & own;
        # if keeps_neighbors
        if (own != {{ 2 ** 32 - 1 }}u) { bits |= {{ buffer.load }}(there + place) & ~own; }
        # endif
        {{ buffer.store }}(there + place, bits);
    }
}
{% include "schedules/map_main" %}
