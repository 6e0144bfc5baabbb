// RESAMPLE3, antialiased, along one axis where few elements lie under a triangle: the sum of what each of them adds. Elements
// without a weight add nothing, even if they are infinite.
{% set axis = axes[0] %}
{% include "resampling/triangle" %}
{% include "reduction/exact_sum" %}
{% set lanes = [""] if output.lanes == 1 else [".x", ".y", ".z", ".w"][:output.lanes] %}
fn total(sum: acc_t) -> f32 {
    return select(sum.x + sum.y, sum.x, is_not_finite(sum.x));
}
fn element(at: output_at) -> output_t {
    let given = triangle(at[{{ axis.dimension }}]);
    var source: input_at = at;
    # for lane in range(output.lanes)
    var sum{{ lane }} = acc_t();
    # endfor
    # for tap in range(taps)
    {
        let here = given.first + {{ tap }}u;
        let share = share_of(given, here);
        source[{{ axis.dimension }}] = min(here, {{ axis.size - 1 }}u);
        let value = input_load(source);
        # for lane in lanes
        sum{{ loop.index0 }} = merge(sum{{ loop.index0 }}, vec2<f32>(select(0.0, share * f32(value{{ lane }}), share > 0.0), 0.0));
        # endfor
    }
    # endfor
    return output_t({% for lane in range(output.lanes) %}{{ ", " if lane }}total(sum{{ lane }}){% endfor %});
}
