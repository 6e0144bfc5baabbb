// Stores an update's bits at a position of the output.
{% if unit_bits < 32 %}
{% include "schedules/exchange" %}
fn store(target_at: output_at, bits: output_t) {
    exchange(output_unit(target_at), bits);
}
{% else %}
fn store(target_at: output_at, bits: output_t) {
    {{ buffer.store }}(output_base() + output_unit(target_at), bits);
}
{% endif %}
