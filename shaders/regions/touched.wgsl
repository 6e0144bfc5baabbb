// ROI_ALIGN_GRAD: a bit for each of up to {{ block }} output elements in which one of {{ across }} adjacent elements along an axis has a weight:
// output[region, block of output elements, group of adjacent elements]
fn element(at: output_at) -> output_t {
    let first = at[1] * {{ block }}u;
    let here = at[2] * {{ across }}u;
    var bits = 0u;
    for (var bit = 0u; bit < min({{ block }}u, {{ weights.sizes[1] }}u - first); bit++) {
        # for place in range(across)
        bits |= select(1u << bit, 0u, weights_load(weights_at(at[0], first + bit, {% if place %}min(here + {{ place }}u, {{ weights.sizes[2] - 1 }}u){% else %}here{% endif %})) == 0.0);
        # endfor
    }
    return bits;
}
