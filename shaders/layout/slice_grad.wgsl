// SLICE_GRAD, PADDING1 with a constant: output[start + step * at] = input[at], other elements come from the border
fn element(at: output_at) -> output_t {
    var source: input_at;
    # for dimension in range(output.rank)
    # set first, stride, size = start[dimension], step[dimension], input.sizes[dimension]
    # if first == 0 and stride == 1 and size == output.sizes[dimension]
    source[{{ dimension }}] = at[{{ dimension }}];
    # else
    source[{{ dimension }}] = {% if stride > 0 %}at[{{ dimension }}] - {{ first }}u{% else %}{{ first }}u - at[{{ dimension }}]{% endif %};
    if (source[{{ dimension }}] > {{ (size - 1) * stride|abs }}u) { return border_load(at); }
    # if stride|abs > 1
    if (source[{{ dimension }}] % {{ stride|abs }}u != 0u) { return border_load(at); }
    source[{{ dimension }}] /= {{ stride|abs }}u;
    # endif
    # endif
    # endfor
    return input_load(source);
}
