// Stores the units of a word that belong to the output, and preserves the others. One invocation owns a whole word,
// and the rest of it is written in another kernel.
fn part(number: u32, shift: u32, bits: ptr<function, u32>, own: ptr<function, u32>) {
    var at: output_at;
    if (number >= {{ walk.count }}u || !locate(number, &at)) { return; }
    *bits |= output_bits(element(at)) << shift;
    *own |= {{ 2 ** unit_bits - 1 }}u << shift;
}
fn handle(word: u32) {
    let place = output_base() + {{ walk.word }}u + word;
    var bits = 0u;
    var own = 0u;
    # for place in range(32 // unit_bits)
    part(word * {{ 32 // unit_bits }}u + {{ (place - walk.first) % 2 ** 32 }}u, {{ place * unit_bits }}u, &bits, &own);
    # endfor
    if (own == 0u) { return; }
    if (own != {{ 2 ** 32 - 1 }}u) { bits |= {{ buffer.load }}(place) & ~own; }
    {{ buffer.store }}(place, bits);
}
