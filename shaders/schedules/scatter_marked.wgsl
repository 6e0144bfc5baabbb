// SCATTER, by marks: only the update that the marks name is stored, so that the result does not depend on any order.
{% include "schedules/scatter_store" %}
{% include "schedules/scatter_main" %}
fn handle(number: u32, target_at: output_at, bits: source_t) {
    if (marks_load(target_at) == number + 1u) { store(target_at, bits); }
}
