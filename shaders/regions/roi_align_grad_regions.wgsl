// ROI_ALIGN_GRAD, output_roi_gradient: contribution to the four numbers of a region from an output element in up to {{ channels }} channels, whose
// samples have equal positions (of MEAN: from a share of the samples): its gradient times the slope of the input at each sample and the
// sample's distance from the opposite end.
{% import "regions/samples" as samples with context %}
{% import "regions/scale" as scale %}
{% include "regions/sampling" %}
{% include "regions/fractions" %}
{% include "reduction/exact_sum" %}
{% if maximum %}
{% include "regions/winning" %}
{% endif %}
// Of the input along x and y.
fn slopes(batch: u32, channel: u32, y: Place, x: Place) -> vec2<f32> {
    let top_left = input_load(input_at(batch, channel, y.low, x.low));
    let top_right = input_load(input_at(batch, channel, y.low, x.high));
    let bottom_left = input_load(input_at(batch, channel, y.high, x.low));
    let bottom_right = input_load(input_at(batch, channel, y.high, x.high));
    return vec2<f32>(
        (1.0 - y.rest) * (top_right - top_left) + y.rest * (bottom_right - bottom_left),
        (1.0 - x.rest) * (bottom_left - top_left) + x.rest * (bottom_right - top_right));
}
fn total(sum: acc_t) -> f32 {
    return select(sum.x + sum.y, sum.x, is_not_finite(sum.x));
}
fn with_number(sum: acc_t, number: f32) -> acc_t {
    return merge(sum, acc_t(number, 0.0));
}
fn tile(at: output_at) -> array<tile_s, 4> {
    # for number in range(4)
    var sum{{ number }} = acc_t();
    # endfor
    let batch = batch_index(batch_at(at[0]), {{ input.sizes[0] }}u);
    if (batch != OUTSIDE) {
    let first_channel = at[2] * {{ channels }}u;
    let end_channel = min(first_channel + {{ channels }}u, {{ input.sizes[1] }}u);
    # if maximum
    let height = extent_y(at[0]);
    let width = extent_x(at[0]);
    for (var channel = first_channel; channel < end_channel; channel++) {
        let winner = winner_load(winner_at(at[0], channel, at[3], at[4]));
        if (has_winner(winner)) {
            let gradient = gradient_load(gradient_at(at[0], channel, at[3], at[4]));
            let rises = gradient * slopes(batch, channel, winning_y(height, at[3], winner), winning_x(width, at[4], winner));
            let x_fraction = fraction_x(width, at[4], winner.x);
            let y_fraction = fraction_y(height, at[3], winner.y);
            sum0 = with_number(sum0, rises.x * (1.0 - x_fraction));
            sum1 = with_number(sum1, rises.y * (1.0 - y_fraction));
            sum2 = with_number(sum2, rises.x * x_fraction);
            sum3 = with_number(sum3, rises.y * y_fraction);
        }
    }
    # else
    # call samples.each_sample("at[0]", "at[3]", "at[4]", "at[5]")
            var x_sum = acc_t();
            var y_sum = acc_t();
            for (var channel = first_channel; channel < end_channel; channel++) {
                let rises = gradient_load(gradient_at(at[0], channel, at[3], at[4])) * slopes(batch, channel, y_place, x_place);
                x_sum = with_number(x_sum, rises.x);
                y_sum = with_number(y_sum, rises.y);
            }
            let x_fraction = fraction_x(x_extent, at[4], x_sample);
            let y_fraction = fraction_y(y_extent, at[3], y_sample);
            let samples = u32_to_f32(y_extent.samples) * u32_to_f32(x_extent.samples);
            sum0 = with_number(sum0, total(x_sum) * (1.0 - x_fraction) / samples);
            sum1 = with_number(sum1, total(y_sum) * (1.0 - y_fraction) / samples);
            sum2 = with_number(sum2, total(x_sum) * x_fraction / samples);
            sum3 = with_number(sum3, total(y_sum) * y_fraction / samples);
    # endcall
    # endif
    }
    # for axis in (axes[1], axes[0], axes[1], axes[0])
    let number{{ loop.index0 }} = total(sum{{ loop.index0 }}) * bitcast<f32>({{ scale.word(axis.scale_bits) }});
    # endfor
    return array<tile_s, 4>(number0, number1, number2, number3);
}
