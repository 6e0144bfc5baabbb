// ROI_ALIGN_GRAD: what an element along an axis weighs in an output element's mean: output[region, output element, element]
{% include "regions/sampling" %}
fn element(at: output_at) -> output_t {
    let extent = extent_{{ axis.name }}(at[0]);
    let here = u32_to_f32(at[2]);
    let range = samples_{{ axis.name }}(extent, at[1], max(here - 1.0, {{ axis.lowest }}.0), min(here + 1.0, {{ axis.highest }}.0));
    var weight = 0.0;
    for (var sample = range.x; sample < range.y; sample++) {
        let place = place_{{ axis.name }}(coordinate_{{ axis.name }}(extent, at[1], sample));
        weight += select(0.0, 1.0 - place.rest, place.low == at[2]) + select(0.0, place.rest, place.high == at[2]);
    }
    return weight / u32_to_f32(extent.samples);
}
