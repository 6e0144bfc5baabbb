// SCATTER, marking: leaves at each place the number of the last update that hits it, plus one; 0 where none does.
{% include "schedules/scatter_main" %}
fn handle(number: u32, target_at: output_at, bits: source_t) {
    atomicMax(&buffer{{ slot }}[output_base() + output_unit(target_at)], number + 1u);
}
