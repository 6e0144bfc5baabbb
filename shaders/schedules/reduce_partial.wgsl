// REDUCE, partial: each of {{ runs * together }} invocations of a row merges a share of its units.
{% import "schedules/reduce_lanes" as row with context %}
fn element(at: output_at) -> output_t {
    let share = at[{{ output.rank - 1 }}];
{{ row.share_bounds() }}
{{ row.walk_row("first", together, "end") }}
    return acc0;
}
