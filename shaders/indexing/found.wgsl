// The index of each element, resolved: OUTSIDE if it is out of range. Along the dimension that is packed into units, if
// any, a coordinate of the output counts units.
{% set packed = output.packed %}fn element(at: output_at) -> output_t {
    # if output.lanes == 1
    return indices_index(at, {{ size }}u);
    # else
    var lookup = at;
    # for lane in range(output.lanes)
    lookup[{{ packed }}] = at[{{ packed }}] * {{ output.lanes }}u + {{ lane }}u;
    let found{{ lane }} = indices_index(lookup, {{ size }}u);
    # endfor
    return output_t({% for lane in range(output.lanes) %}found{{ lane }}{{ ", " if not loop.last }}{% endfor %});
    # endif
}
