// Per axis: the first and the last element of the window that lie on the input at a position.
# for axis in axes
fn first_inside{{ loop.index0 }}(position: u32) -> u32 {
    let missing = max({{ axis.start|i32 }} - i32(position * {{ axis.stride }}u), 0i);
    return u32(missing + {{ (axis.dilation - 1)|i32 }}) / {{ axis.dilation }}u;
}
fn last_inside{{ loop.index0 }}(position: u32) -> u32 {
    let room = u32({{ (axis.spatial - 1 + axis.start)|i32 }} - i32(position * {{ axis.stride }}u));
    return min(room / {{ axis.dilation }}u, {{ axis.size - 1 }}u);
}
# endfor
