// ROI_POOLING: output = the largest element of a region's bin, 0 where the bin has none
fn place(at: output_at, source: ptr<function, input_at>) -> bool {
    let number = largest_index(at, {{ count }}u);
    if (number == OUTSIDE) { return false; }
    # for step in steps
    (*source)[{{ loop.index0 }}] = {{ mod(div("number", step), input.sizes[loop.index0]) }};
    # endfor
    return true;
}
