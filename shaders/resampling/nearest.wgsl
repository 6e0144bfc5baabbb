// RESAMPLE3, UPSAMPLE_2D, nearest neighbor: output[o] = input[x rounded down or up], clamped to the input
{% include "resampling/nearest_element" %}
fn place(at: output_at, source: ptr<function, input_at>) -> bool {
    *source = at;
    # for axis in axes
    (*source)[{{ axis.dimension }}] = nearest{{ loop.index0 }}(at[{{ axis.dimension }}]);
    # endfor
    return true;
}
