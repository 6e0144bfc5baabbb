// Number of keys that a query attends to: past ones, those of earlier queries, and its own.
fn element(at: output_at) -> output_t {
    return min(u32(clamp(past_load(at), 0, {{ keys|i32 }})) + at[{{ output.rank - 1 }}] + 1u, {{ keys }}u);
}
