// RESAMPLE3, antialiased, along one axis if few elements lie under a triangle: antialiased_sum's sums for a tile of adjacent
// output elements at the same coordinate, whose weights are computed once.
{% set axis = axes[0] %}
{% set lanes = input.lanes %}
{% include "resampling/triangle" %}
{% set number_t = "f32" if lanes == 1 else "vec%d<f32>" % lanes %}
fn tile(at: output_at) -> array<tile_s, {{ units * lanes }}> {
    let given = triangle(at[{{ axis.dimension }}]);
    # for tap in range(taps)
    let here{{ tap }} = given.first + {{ tap }}u;
    let share{{ tap }} = share_of(given, here{{ tap }});
    # endfor
    var source: input_at = at;
    # for unit in range(units)
    source[{{ along }}] = {% if unit %}min({% endif %}at[{{ along }}]{{ " / %du" % lanes if lanes > 1 }}{% if unit %} + {{ unit }}u, {{ input.sizes[along] - 1 }}u){% endif %};
    var total{{ unit }} = {{ number_t }}();
    # for tap in range(taps)
    source[{{ axis.dimension }}] = min(here{{ tap }}, {{ axis.size - 1 }}u);
    total{{ unit }} += select({{ number_t }}(), share{{ tap }} * {{ number_t }}(input_load(source)), share{{ tap }} > 0.0);
    # endfor
    # endfor
    return array<tile_s, {{ units * lanes }}>({% for unit in range(units) %}{% for lane in ("xyzw" if lanes > 1 else " ") %}total{{ unit }}{{ "." ~ lane if lanes > 1 }}{% if not loop.last %}, {% endif %}{% endfor %}{% if not loop.last %}, {% endif %}{% endfor %});
}
