// SCATTER: a few updates per invocation, in row-major order of the updates; `place` computes the position of each.
{% include "schedules/scatter_store" %}
{% include "schedules/scatter_main" %}
# if in_word > 1
// The elements of a word, which lie side by side.
fn word(first: source_at) -> u32 {
    var at = first;
    var bits = output_bits(source_load(at));
    # for place in range(1, in_word)
    at[{{ source.rank - 1 }}] += 1u;
    bits |= output_bits(source_load(at)) << {{ place * unit_bits }}u;
    # endfor
    return bits;
}
# endif
fn handle(number: u32, target_at: output_at, bits: {% if in_word > 1 %}u32{% else %}source_t{% endif %}) {
    store(target_at, bits);
}
