// Stores an update's bits at a position of the output.
{% if step.in_word > 1 %}
fn store(target_at: output_at, bits: u32) {
    {{ buffer.store }}(output_base() + output_unit(target_at) / {{ step.in_word }}u, bits);
}
{% elif unit_bits < 32 %}
{% include "schedules/exchange" %}
fn store(target_at: output_at, bits: output_t) {
    exchange(output_unit(target_at), bits);
}
{% elif step.computes %}
fn store(target_at: output_at, value: output_t) {
    {{ buffer.store }}(output_base() + output_unit(target_at), output_bits(value));
}
{% else %}
fn store(target_at: output_at, bits: output_t) {
    {{ buffer.store }}(output_base() + output_unit(target_at), bits);
}
{% endif %}
