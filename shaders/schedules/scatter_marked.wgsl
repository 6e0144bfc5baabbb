// SCATTER, by marks: only the update that the marks name is stored, so that the result does not depend on any order.
{% include "schedules/scatter_store" %}
{% include "schedules/scatter_main" %}
fn handle(number: u32, at: source_at, target_at: output_at) {
    if (marks_load(target_at) == number + 1u) { store(target_at, source_load(at)); }
}
