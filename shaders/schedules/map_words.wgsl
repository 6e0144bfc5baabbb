// MAP of a copy, word by word: units that lie side by side in both tensors are read as a word, from where it begins; words at
// the ends of runs are put together from single units. (A loop for these: some processors' drivers go through both
// branches, but not through loops that nobody enters.)
{% set count = 32 // unit_bits %}
{% include "schedules/locate" %}
fn part(number: u32, shift: u32, bits: ptr<function, u32>, own: ptr<function, u32>) {
    var at: output_at;
    if (number >= {{ walk.count }}u || !locate(number, &at)) { return; }
    *bits |= output_bits(element(at)) << shift;
    *own |= {{ 2 ** unit_bits - 1 }}u << shift;
}
fn handle(word: u32) {
    let number = word * {{ count }}u - {{ walk.first }}u;
    var at: output_at;
    let whole = number < {{ walk.count }}u && locate(number, &at) && at[{{ run }}] < {{ size - count + 1 }}u;
    var bits = 0u;
    var own = 0u;
    if (whole) {
        bits = input_word(at);
        own = {{ 2 ** 32 - 1 }}u;
    }
    for (var place = select(0u, {{ count }}u, whole); place < {{ count }}u; place++) {
        part(number + place, place * {{ unit_bits }}u, &bits, &own);
    }
    let there = output_base() + {{ walk.word }}u + word;
    # if walk.keeps_neighbours
    if (own == 0u) { return; }
    if (own != {{ 2 ** 32 - 1 }}u) { bits |= buffer{{ slot }}[there] & ~own; }
    # endif
    buffer{{ slot }}[there] = bits;
}
{% include "schedules/map_main" %}
