// ROI_ALIGN_GRAD with MAX: the sample that is the maximum, as its indices along x and y, for {{ tile }} channels, whose samples have equal
// positions; all ones if it is outside the input. A share of the samples at a time: `previous` is the winner of the shares before.
{% import "regions/samples" as samples with context %}
{% include "regions/sampling" %}
{% include "regions/interpolated" %}
{% if share %}
{% include "regions/winning" %}
{% endif %}
fn tile(at: output_at) -> array<tile_s, {{ tile }}> {
    # for channel in range(tile)
    let channel{{ channel }} = {% if channel %}min(at[1] + {{ channel }}u, {{ output.sizes[1] - 1 }}u){% else %}at[1]{% endif %};
    var winner{{ channel }} = vec2<u32>(0xffffffffu);
    var best{{ channel }} = 0u; // below all ranks
    # endfor
    let batch = batch_index(batch_at(at[0]), {{ input.sizes[0] }}u);
    if (batch != OUTSIDE) {
    # if share
    # for channel in range(tile)
    let previous{{ channel }} = previous_load(previous_at(at[0], channel{{ channel }}, at[2], at[3]));
    if (has_winner(previous{{ channel }})) {
        winner{{ channel }} = previous{{ channel }};
        let y_winner = winning_y(extent_y(at[0]), at[2], winner{{ channel }});
        let x_winner = winning_x(extent_x(at[0]), at[3], winner{{ channel }});
        best{{ channel }} = ascending_f32(interpolated(batch, channel{{ channel }}, y_winner, x_winner));
    }
    # endfor
    # endif
    # call samples.each_sample("at[0]", "at[2]", "at[3]", share ~ "u")
            # for channel in range(tile)
            {
                let rank = ascending_f32(interpolated(batch, channel{{ channel }}, y_place, x_place)); // that of NaN is the largest
                if (rank > best{{ channel }}) {
                    best{{ channel }} = rank;
                    winner{{ channel }} = vec2<u32>(x_sample, y_sample);
                }
            }
            # endfor
    # endcall
    let all_inside = y_range.y - y_range.x == y_extent.samples && x_range.y - x_range.x == x_extent.samples;
    let outside = select(ascending_f32(0.0), 0u, all_inside);
    # for channel in range(tile)
    if (outside > best{{ channel }}) { winner{{ channel }} = vec2<u32>(0xffffffffu); }
    # endfor
    }
    return array<tile_s, {{ tile }}>({% for channel in range(tile) %}winner{{ channel }}{{ ", " if not loop.last }}{% endfor %});
}
