// Per axis: the position at which an element of the input lies at a place of the window; beyond the last where there is none.
# for axis in axes
fn position{{ loop.index0 }}(here: u32, place: u32) -> u32 {
    let first = here + {{ axis.start }}u;
    let reached = place * {{ axis.dilation }}u;
    # if axis.stride == 1
    return select(first - reached, 0xffffffffu, first < reached);
    # else
    let distance = first - reached;
    return select(distance / {{ axis.stride }}u, 0xffffffffu, first < reached || distance % {{ axis.stride }}u != 0u);
    # endif
}
# endfor
