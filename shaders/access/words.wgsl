// The bits of a word that begins with some unit, of neighbours that lie side by side in memory.
fn {{ name }}_word(at: {{ name }}_at) -> u32 {
    let unit = {{ name }}_unit(at);
    let low = buffer{{ slot }}[{{ name }}_base() + unit / {{ count }}u];
    let high = buffer{{ slot }}[{{ name }}_base() + (unit + {{ count - 1 }}u) / {{ count }}u];
    let shift = (unit % {{ count }}u) * {{ 32 // count }}u;
    return (low >> shift) | select(high << (32u - shift), 0u, shift == 0u);
}
