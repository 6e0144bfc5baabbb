// The sum over the window of each element along dimension {{ axis }}: {{ before }} elements before it, {{ after }} after it, within
// the tensor. Long windows are summed in tiles, which keeps rounding errors small.
fn element(at: output_at) -> output_t {
    let first = at[{{ axis }}] - min(at[{{ axis }}], {{ before }}u);
    let last = min(at[{{ axis }}] + {{ after }}u, {{ output.sizes[axis] - 1 }}u);
    var source: input_at = at;
    var sum = output_t();
    var tile = output_t();
    for (var place = first; place <= last; place++) {
        source[{{ axis }}] = place;
        tile += input_load(source);
        if (((place - first) & 63u) == 63u) {
            sum += tile;
            tile = output_t();
        }
    }
    return sum + tile;
}
