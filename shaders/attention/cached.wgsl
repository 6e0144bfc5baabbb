// New rows of a cache follow its past ones; there may be no room.
fn place(at: source_at, target_at: ptr<function, output_at>) -> bool {
    *target_at = at;
    (*target_at)[2] = u32(clamp(past_load(at), 0, {{ output.sizes[2]|i32 }})) + at[2];
    return (*target_at)[2] < {{ output.sizes[2] }}u;
}
