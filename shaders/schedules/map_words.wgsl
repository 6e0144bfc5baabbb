// MAP of a copy, {{ words }} words at a time: units that are contiguous in both tensors are read as words, from the first unit;
// words at the ends of runs are composed of single units. (In loops: some CPU drivers execute both
// branches, but not loops that no invocation enters.)
{% set count = 32 // unit_bits %}
{% include "schedules/locate" %}
fn part(number: u32, shift: u32, bits: ptr<function, u32>, own: ptr<function, u32>) {
    var at: output_at;
    if (number >= {{ walk.count }}u || !locate(number, &at)) { return; }
    *bits |= output_bits(element(at)) << shift;
    *own |= {{ 2 ** unit_bits - 1 }}u << shift;
}
fn store_word(number: u32, there: u32) {
    if (number >= {{ total }}u) { return; }
    let unit = number * {{ count }}u - {{ walk.first }}u;
    var at: output_at;
    let whole = unit < {{ walk.count }}u && locate(unit, &at) && at[{{ run }}] < {{ size - count + 1 }}u;
    var bits = 0u;
    var own = 0u;
    if (whole) {
        bits = input_words1(at)[0];
        own = {{ 2 ** 32 - 1 }}u;
    }
    for (var place = select(0u, {{ count }}u, whole); place < {{ count }}u; place++) {
        part(unit + place, place * {{ unit_bits }}u, &bits, &own);
    }
    # if walk.keeps_neighbors
    if (own == 0u) { return; }
    if (own != {{ 2 ** 32 - 1 }}u) { bits |= {{ buffer.load }}(there) & ~own; }
    # endif
    {{ buffer.store }}(there, bits);
}
fn handle(number: u32) {
    let first = number * {{ words }}u;
    let unit = first * {{ count }}u - {{ walk.first }}u;
    let there = output_base() + {{ walk.word }}u + first;
    var at: output_at;
    let whole = unit < {{ walk.count }}u && locate(unit, &at) && at[{{ run }}] < {{ [size - count * words + 1, 0]|max }}u;
    if (whole) {
        let bits = input_words{{ words }}(at);
        # for place in range(words)
        {{ buffer.store }}(there + {{ place }}u, bits[{{ place }}]);
        # endfor
    }
    for (var place = select(0u, {{ words }}u, whole); place < {{ words }}u; place++) { store_word(first + place, there + place); }
}
{% include "schedules/map_main" %}
