// The coordinates of the unit with a running index; false for indices in a gap.
fn locate(number: u32, at: ptr<function, output_at>) -> bool {
    var rest = number;
    # for digit in walk.digits
    # if digit.stride == 0
    (*at)[{{ digit.dimension }}] = 0u;
    # else
    # if loop.last and digit.stride == 1
    (*at)[{{ digit.dimension }}] = rest;
    # else
    (*at)[{{ digit.dimension }}] = {{ div("rest", digit.stride) }};
    rest = {{ mod("rest", digit.stride) }};
    # endif
    # if digit.checked
    if ((*at)[{{ digit.dimension }}] >= {{ digit.size }}u) { return false; }
    # endif
    # endif
    # endfor
    # if walk.gaps
    if (rest != 0u) { return false; }
    # endif
    return true;
}
