// SCATTER, marking: stores at each position the index of its last update, plus one; 0 if there is none.
{% include "schedules/scatter_main" %}
fn handle(number: u32, target_at: output_at, bits: source_t) {
    atomicMax(&{{ buffer.atomics }}[output_base() + output_unit(target_at)], number + 1u);
}
