// ROI_ALIGN_GRAD with MAX: the sample that is the maximum, as its numbers along x and y; all ones where that lies outside the
// input. A share of the samples at a time: `previous` is the winner of the shares before.
{% import "regions/samples" as samples with context %}
{% include "regions/sampling" %}
{% include "regions/interpolated" %}
{% if share %}
{% include "regions/winning" %}
{% endif %}
fn element(at: output_at) -> output_t {
    var winner = vec2<u32>(0xffffffffu);
    let batch = batch_index(batch_at(at[0]), {{ input.sizes[0] }}u);
    if (batch == OUTSIDE) { return winner; }
    var best = 0u; // below all ranks
    # if share
    let previous = previous_load(at);
    if (has_winner(previous)) {
        winner = previous;
        let y_winner = winning_y(extent_y(at[0]), at[2], winner);
        let x_winner = winning_x(extent_x(at[0]), at[3], winner);
        best = ascending_f32(interpolated(batch, at[1], y_winner, x_winner));
    }
    # endif
    # call samples.each_sample("at[0]", "at[2]", "at[3]", share ~ "u")
            let rank = ascending_f32(interpolated(batch, at[1], y_place, x_place)); // that of NaN is the largest
            if (rank > best) {
                best = rank;
                winner = vec2<u32>(x_sample, y_sample);
            }
    # endcall
    let all_inside = y_range.y - y_range.x == y_extent.samples && x_range.y - x_range.x == x_extent.samples;
    if (!all_inside && ascending_f32(0.0) > best) { return vec2<u32>(0xffffffffu); }
    return winner;
}
