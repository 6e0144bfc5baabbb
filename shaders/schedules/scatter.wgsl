// SCATTER: a few updates per invocation, in row-major order of the updates; `place` computes the position of each.
{% include "schedules/scatter_store" %}
{% include "schedules/scatter_main" %}
fn handle(number: u32, target_at: output_at, bits: source_t) {
    store(target_at, bits);
}
