// TOP_K1: output_value = input at the indices, along the axis, of the first K elements in sorted order
fn element(at: output_at) -> output_t {
    var source = at;
    source[{{ axis }}] = places_index(at, {{ input.sizes[axis] }}u);
    return input_load(source);
}
