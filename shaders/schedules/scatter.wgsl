// SCATTER: one invocation per update, in row-major order of the updates; `place` says where it belongs.
{% include "schedules/scatter_store" %}
{% include "schedules/scatter_main" %}
fn handle(number: u32, at: source_at, target_at: output_at) {
    store(target_at, source_load(at));
}
