// The coordinates of the unit with a running number; false for numbers that fall into a gap.
fn locate(number: u32, at: ptr<function, output_at>) -> bool {
    var rest = number;
    # for digit in walk.digits
    # if digit.size is not many
    (*at)[{{ digit.dimension }}] = 0u;
    # else
    # if digit.stride is many
    (*at)[{{ digit.dimension }}] = rest / {{ digit.stride }}u;
    rest = rest % {{ digit.stride }}u;
    # else
    (*at)[{{ digit.dimension }}] = rest;
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
