// MAP: every unit of the output by itself. An invocation handles {{ launch.items_per_invocation }} consecutive work items: units of the output, or the
// 32-bit words that smaller units share (one invocation owns a whole word, so that words are never torn).
{% include "schedules/locate" %}
{% if walk.exchange %}
{% include "schedules/exchange" %}
fn handle(number: u32) {
    var at: output_at;
    if (locate(number, &at)) { exchange(output_unit(at), output_bits(element(at))); }
}
{% elif walk.keeps_neighbors %}
{% include "schedules/kept_words" %}
{% elif walk.by_words %}
fn part(number: u32) -> u32 {
    var at: output_at;
    if (number >= {{ walk.count }}u || !locate(number, &at)) { return 0u; }
    return output_bits(element(at));
}
fn handle(word: u32) {
    var bits = 0u;
    # if costly|default(false)
    for (var place = 0u; place < {{ 32 // unit_bits }}u; place++) {
        bits |= part(word * {{ 32 // unit_bits }}u + place - {{ walk.first }}u) << (place * {{ unit_bits }}u);
    }
    # else
    # for place in range(32 // unit_bits)
    bits |= part(word * {{ 32 // unit_bits }}u + {{ (place - walk.first) % 2 ** 32 }}u) << {{ place * unit_bits }}u;
    # endfor
    # endif
    {{ buffer.store }}(output_base() + {{ walk.word }}u + word, bits);
}
{% elif not launch.strided %}
fn handle(number: u32) {
    var at: output_at;
    if (locate(number, &at)) { {{ buffer.store }}(output_base() + output_unit(at), output_bits(element(at))); }
}
{% endif %}
{% if launch.strided %}
{% include "schedules/map_strided" %}
{% else %}
{% include "schedules/map_main" %}
{% endif %}
