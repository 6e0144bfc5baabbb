// ROI_ALIGN_GRAD with MAX: the coordinates y and x, clamped to the input, of the sample that is the maximum, as bits; before the
// input if there is none. For {{ tile }} channels of an output element.
{% include "regions/sampling" %}
{% include "regions/winning" %}
fn coordinate_of(place: Place) -> f32 {
    return u32_to_f32(place.low) + place.rest;
}
fn tile(at: output_at) -> array<tile_s, {{ tile }}> {
    let height = extent_y(at[0]);
    let width = extent_x(at[0]);
    # for channel in range(tile)
    var place{{ channel }} = vec2<f32>(-2.0);
    {
        let winner = winner_load(winner_at(at[0], {% if channel %}min(at[1] + {{ channel }}u, {{ output.sizes[1] - 1 }}u){% else %}at[1]{% endif %}, at[2], at[3]));
        if (has_winner(winner)) {
            place{{ channel }} = vec2<f32>(coordinate_of(winning_y(height, at[2], winner)), coordinate_of(winning_x(width, at[3], winner)));
        }
    }
    # endfor
    return array<tile_s, {{ tile }}>({% for channel in range(tile) %}bitcast<vec2<u32>>(place{{ channel }}){{ ", " if not loop.last }}{% endfor %});
}
