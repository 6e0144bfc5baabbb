// A number per element that increases by a step along each dimension, modulo 2^32: with packed strides the row-major
// index. Along the dimension that is packed into units, if any, a coordinate counts units.
fn element(at: output_at) -> output_t {
    var place = 0u;
    # for dimension in range(output.rank)
    place += at[{{ dimension }}] * {{ steps[dimension] * (output.lanes if dimension == output.packed else 1) % 2 ** 32 }}u;
    # endfor
    # if output.lanes == 1
    return place;
    # else
    return output_t({% for lane in range(output.lanes) %}place + {{ lane * steps[output.packed] % 2 ** 32 }}u{{ ", " if not loop.last }}{% endfor %});
    # endif
}
