// ROI_ALIGN1: output = the mean or the maximum of a region's samples, outside the input of a constant. A share of the samples
// at a time: `previous` is the result of the earlier shares.
{% import "regions/samples" as samples with context %}
{% include "regions/sampling" %}
{% include "regions/interpolated" %}
{% if not maximum %}
{% include "reduction/exact_sum" %}
{% endif %}
fn outside() -> f32 {
    return bitcast<f32>({{ outside_bits }}u | opaque_zero());
}
fn element(at: output_at) -> output_t {
    let batch = batch_index(batch_at(at[0]), {{ input.sizes[0] }}u);
    # if share
    var result = previous_load(at);
    if (batch == OUTSIDE) { return result; }
    # else
    if (batch == OUTSIDE) { return outside(); }
    # endif
    # if maximum
    # if share
    var best = ascending_f32(result);
    # else
    var result = outside();
    var best = 0u; // below all ranks
    # endif
    # call samples.each_sample("at[0]", "at[2]", "at[3]", share ~ "u")
            let value = interpolated(batch, at[1], y_place, x_place);
            let rank = ascending_f32(value); // that of NaN is the largest
            if (rank > best) {
                best = rank;
                result = value;
            }
    # endcall
    # if share
    return result;
    # else
    let all_inside = y_range.y - y_range.x == y_extent.samples && x_range.y - x_range.x == x_extent.samples;
    return select(result, outside(), !all_inside && ascending_f32(outside()) > best);
    # endif
    # else
    var sum = acc_t();
    # call samples.each_sample("at[0]", "at[2]", "at[3]", share ~ "u")
            sum = merge(sum, acc_t(interpolated(batch, at[1], y_place, x_place), 0.0));
    # endcall
    let count = u32_to_f32(y_extent.samples) * u32_to_f32(x_extent.samples);
    let mean = select(sum.x + sum.y, sum.x, is_not_finite(sum.x)) / count;
    # if share
    return result + mean;
    # else
    let inside = f32(y_range.y - y_range.x) * f32(x_range.y - x_range.x);
    return mean + select(0.0, outside() * ((count - inside) / count), inside < count);
    # endif
    # endif
}
