// ROI_ALIGN_GRAD, output_roi_gradient: what reaches a number of a region from an output element (of MEAN: from a share of its
// samples): its gradient times the slope of the input at each sample and the sample's distance from the opposite end.
{% import "regions/samples" as samples with context %}
{% import "regions/scale" as scale %}
{% include "regions/sampling" %}
{% include "regions/fractions" %}
{% if maximum %}
{% include "regions/winning" %}
{% else %}
{% include "reduction/exact_sum" %}
{% endif %}
fn slope(batch: u32, channel: u32, y: Place, x: Place, along_x: bool) -> f32 {
    let top_left = input_load(input_at(batch, channel, y.low, x.low));
    let top_right = input_load(input_at(batch, channel, y.low, x.high));
    let bottom_left = input_load(input_at(batch, channel, y.high, x.low));
    let bottom_right = input_load(input_at(batch, channel, y.high, x.high));
    if (along_x) { return (1.0 - y.rest) * (top_right - top_left) + y.rest * (bottom_right - bottom_left); }
    return (1.0 - x.rest) * (bottom_left - top_left) + x.rest * (bottom_right - top_right);
}
fn distance(fraction: f32, far: bool) -> f32 {
    return select(1.0 - fraction, fraction, far);
}
fn element(at: output_at) -> output_t {
    let along_x = at[1] % 2u == 0u;
    let far = at[1] >= 2u;
    let batch = batch_index(batch_at(at[0]), {{ input.sizes[0] }}u);
    if (batch == OUTSIDE) { return 0.0; }
    let gradient = gradient_load(gradient_at(at[0], at[2], at[3], at[4])) * bitcast<f32>(select({{ scale.word(axes[0].scale_bits) }}, {{ scale.word(axes[1].scale_bits) }}, along_x));
    # if maximum
    let winner = winner_load(winner_at(at[0], at[2], at[3], at[4]));
    if (!has_winner(winner)) { return 0.0; }
    let height = extent_y(at[0]);
    let width = extent_x(at[0]);
    let rise = slope(batch, at[2], winning_y(height, at[3], winner), winning_x(width, at[4], winner), along_x);
    let fraction = select(fraction_y(height, at[3], winner.y), fraction_x(width, at[4], winner.x), along_x);
    return gradient * rise * distance(fraction, far);
    # else
    var sum = acc_t();
    # call samples.each_sample("at[0]", "at[3]", "at[4]", "at[5]")
            let rise = slope(batch, at[2], y_place, x_place, along_x);
            let fraction = select(fraction_y(y_extent, at[3], y_sample), fraction_x(x_extent, at[4], x_sample), along_x);
            sum = merge(sum, acc_t(rise * distance(fraction, far), 0.0));
    # endcall
    return gradient * (sum.x + sum.y) / (u32_to_f32(y_extent.samples) * u32_to_f32(x_extent.samples));
    # endif
}
