// How many keys a query sees that follows a number of past ones: these, those of the queries before it, and its own.
fn element(at: output_at) -> output_t {
    return min(u32(clamp(past_load(at), 0, {{ keys }})) + at[{{ output.rank - 1 }}] + 1u, {{ keys }}u);
}
