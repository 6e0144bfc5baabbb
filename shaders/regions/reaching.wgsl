// ROI_ALIGN_GRAD: a bit for each of up to {{ group }} regions in which a block of output elements affects an element along an axis:
// output[batch, group of regions, block, element]{{ "; of the batch alone" if batches }}
fn element(at: output_at) -> output_t {
    let first = at[1] * {{ group }}u;
    var bits = 0u;
    for (var bit = 0u; bit < min({{ group }}u, {{ touched.sizes[0] }}u - first); bit++) {
        let region = first + bit;
        # if batches
        if (batch_index(batch_at(region), {{ output.sizes[0] }}u) != at[0]) { continue; }
        # endif
        bits |= select(1u << bit, 0u, touched_load(touched_at(region, at[2], at[3])) == 0u);
    }
    return bits;
}
