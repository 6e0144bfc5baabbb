// Whether an element of a window lies on the input (1) or in the padding (0).
fn element(at: output_at) -> output_t {
    # for axis in axes
    # set here = lead + loop.index0
    let place{{ here }} = at[{{ here }}] * {{ axis.stride }}u + at[{{ here + axes|length }}] * {{ axis.dilation }}u - {{ axis.start }}u;
    if (place{{ here }} >= {{ axis.spatial }}u) { return output_t(0u); }
    # endfor
    return output_t(1u);
}
