// REDUCE, serial: one invocation walks the whole row.
{% import "schedules/reduce_lanes" as row with context %}
fn element(at: output_at) -> output_t {
{{ row.walk_row("0u", 1, count ~ ("u + opaque_zero()" if walks_in_loop else "u")) }}
    return {{ row.finished("acc0", "at") }};
}
