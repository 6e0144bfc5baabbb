// Stores a unit smaller than a word, without changing other units in that word.
fn exchange(unit: u32, bits: u32) {
    let word = output_base() + unit / {{ 32 // unit_bits }}u;
    let shift = (unit % {{ 32 // unit_bits }}u) * {{ unit_bits }}u;
    let mask = {{ 2 ** unit_bits - 1 }}u << shift;
    var old = atomicLoad(&{{ buffer.atomics }}[word]);
    loop {
        let attempt = atomicCompareExchangeWeak(&{{ buffer.atomics }}[word], old, (old & ~mask) | (bits << shift));
        if (attempt.exchanged) { break; }
        old = attempt.old_value;
    }
}
