// ROI_ALIGN_GRAD: a bit for each of up to {{ block }} output elements in which an element along an axis has a weight:
// output[region, block of output elements, element]
fn element(at: output_at) -> output_t {
    let first = at[1] * {{ block }}u;
    var bits = 0u;
    for (var bit = 0u; bit < min({{ block }}u, {{ weights.sizes[1] }}u - first); bit++) {
        bits |= select(1u << bit, 0u, weights_load(weights_at(at[0], first + bit, at[2])) == 0.0);
    }
    return bits;
}
