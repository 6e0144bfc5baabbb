// RESAMPLE3, UPSAMPLE_2D, linear: output = the sum, over both neighbors along every axis and all combinations of these, of
// weights * input. Elements without weight add nothing, even if they are infinite.
{% include "resampling/coordinate" %}
{% set number_t = "f32" if output.lanes == 1 else "vec" ~ output.lanes ~ "<f32>" %}
fn element(at: output_at) -> output_t {
    # for axis in axes
    let x{{ loop.index0 }} = clamp(coordinate{{ loop.index0 }}(at[{{ axis.dimension }}]), 0.0, {{ (axis.size - 1)|f32 }});
    let low{{ loop.index0 }} = min(u32(x{{ loop.index0 }}), {{ axis.size - 1 }}u);
    let share{{ loop.index0 }} = x{{ loop.index0 }} - {{ "f32" if axis.size <= 2 ** 24 else "u32_to_f32" }}(low{{ loop.index0 }});
    # endfor
    var source = at;
    var weight: f32;
    var total = output_t();
    # for corner in range(2 ** axes|length)
    weight = 1.0;
    # for axis in axes
    # set upper = corner // 2 ** loop.index0 % 2
    weight *= {{ "share" if upper else "1.0 - share" }}{{ loop.index0 }};
    source[{{ axis.dimension }}] = {{ "min(low%d + 1u, %su)" % (loop.index0, axis.size - 1) if upper else "low%d" % loop.index0 }};
    # endfor
    if (weight != 0.0) { total += weight * {{ number_t }}(input_load(source)); }
    # endfor
    return total;
}
