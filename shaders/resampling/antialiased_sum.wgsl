// RESAMPLE3, antialiased, along one axis if few elements lie under a triangle: the sum of their contributions. Elements
// without a weight add nothing, even if they are infinite.
{% set axis = axes[0] %}
{% include "resampling/triangle" %}
{% set number_t = "f32" if output.lanes == 1 else "vec%d<f32>" % output.lanes %}
fn element(at: output_at) -> output_t {
    let given = triangle(at[{{ axis.dimension }}]);
    var source: input_at = at;
    var total = output_t();
    # for tap in range(taps)
    {
        let here = given.first + {{ tap }}u;
        let share = share_of(given, here);
        source[{{ axis.dimension }}] = min(here, {{ axis.size - 1 }}u);
        total += select({{ number_t }}(), share * {{ number_t }}(input_load(source)), share > 0.0);
    }
    # endfor
    return total;
}
