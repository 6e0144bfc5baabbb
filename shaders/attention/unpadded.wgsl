// 1 for the keys before the end, and from the start on where there is one; 0 for padding.
fn element(at: output_at) -> output_t {
    let key = i32(at[{{ output.rank - 1 }}]);
    return u32(key < end_load(at){% if start is defined %} && key >= start_load(at){% endif %});
}
