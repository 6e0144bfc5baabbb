// ACTIVATION_HARDMAX1: output = 1 where the element's index along the axes is that of the first largest, else 0
# set packed = output.lanes > 1
# set numbers = "vec" ~ output.lanes ~ "<u32>" if packed else "u32"
fn element(at: output_at) -> output_t {
    var number = {{ numbers }}(0u);
    # for axis in axes
    # if output.sizes[axis] == sizes[axis]
    number = number * {{ sizes[axis] }}u + at[{{ axis }}];
    # else
    number = number * {{ sizes[axis] }}u + at[{{ axis }}] * {{ output.lanes }}u + {{ numbers }}({{ range(output.lanes)|join("u, ") }}u);
    # endif
    # endfor
    return select(output_t(0.0), output_t(1.0), number == first_load(at));
}
