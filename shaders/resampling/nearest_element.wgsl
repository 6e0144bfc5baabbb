// Per axis: the input element of nearest neighbor for an output coordinate.
{% include "resampling/coordinate" %}
# for axis in axes
fn nearest{{ loop.index0 }}(number: u32) -> u32 {
    return min(f32_to_u32({{ "ceil" if increasing else "floor" }}(coordinate{{ loop.index0 }}(number))), {{ axis.size - 1 }}u);
}
# endfor
