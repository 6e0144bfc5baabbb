// Per axis: the position of a tap, if its window covers an element of the input, else one beyond the last. Taps
// are the elements of the window, or the positions if these are fewer.
# for axis in axes
fn position{{ loop.index0 }}(here: u32, tap: u32) -> u32 {
    # if axis.by_position
    let distance = here + {{ axis.start }}u - tap * {{ axis.stride }}u; // wraps around before the window
    return select(0xffffffffu, tap, distance % {{ axis.dilation }}u == 0u && distance / {{ axis.dilation }}u < {{ axis.size }}u);
    # else
    let first = here + {{ axis.start }}u;
    let reached = tap * {{ axis.dilation }}u;
    # if axis.stride == 1
    return select(first - reached, 0xffffffffu, first < reached);
    # else
    let distance = first - reached;
    return select(distance / {{ axis.stride }}u, 0xffffffffu, first < reached || distance % {{ axis.stride }}u != 0u);
    # endif
    # endif
}
# endfor
