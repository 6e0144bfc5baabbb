// First input element of a tile of a depthwise convolution, and its filter of {{ tap_rows }} rows, if it is in units.
    var source: input_at;
    source[0] = at[0];
    source[1] = at[1];
    var taps_place: taps_at;
    taps_place[0] = at[1];
    taps_place[1] = at[{{ channel }}];
    # if in_units
    # for unit in range((across.axis.size * tap_rows + 3) // 4)
    taps_place[2] = {{ unit }}u;
    let taps{{ unit }} = taps_load(taps_place);
    # endfor
    # endif
