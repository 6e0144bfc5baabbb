// UNFOLD, pooling: elements of windows, output[lead.., position.., place..] = input[lead.., position * stride + place * dilation - start ..],
// 0 in the padding. Coordinates before the input wrap around to large numbers, so that one comparison finds both ends.
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(lead)
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # for axis in axes
    # set here = lead + loop.index0
    let place{{ here }} = at[{{ here }}] * {{ axis.stride }}u + at[{{ here + axes|length }}] * {{ axis.dilation }}u - {{ axis.start % 2 ** 32 }}u;
    if (place{{ here }} >= {{ axis.spatial }}u) { return output_t(); }
    source[{{ here }}] = place{{ here }};
    # endfor
    return input_load(source);
}
