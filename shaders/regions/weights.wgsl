// ROI_ALIGN_GRAD: weights of {{ tile }} adjacent elements along an axis in an output element's mean:
// output[region, output element, element]
{% include "regions/sampling" %}
fn tile(at: output_at) -> array<tile_s, {{ tile }}> {
    let extent = extent_{{ axis.name }}(at[0]);
    let here = u32_to_f32(at[2]);
    let range = samples_{{ axis.name }}(extent, at[1], max(here - 1.0, {{ axis.lowest|f32 }}), min(here + {{ tile|f32 }}, {{ axis.highest|f32 }}));
    # for element in range(tile)
    var weight{{ element }} = 0.0;
    # endfor
    for (var sample = range.x; sample < range.y; sample++) {
        let place = place_{{ axis.name }}(coordinate_{{ axis.name }}(extent, at[1], sample));
        # for element in range(tile)
        weight{{ element }} += select(0.0, 1.0 - place.rest, place.low == at[2] + {{ element }}u) + select(0.0, place.rest, place.high == at[2] + {{ element }}u);
        # endfor
    }
    let samples = u32_to_f32(extent.samples);
    return array<tile_s, {{ tile }}>({% for element in range(tile) %}weight{{ element }} / samples{{ ", " if not loop.last }}{% endfor %});
}
