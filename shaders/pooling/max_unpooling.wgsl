// MAX_UNPOOLING: output[index] = input, for row-major indices; those beyond the output are dropped
fn place(at: source_at, target_at: ptr<function, output_at>) -> bool {
    let number = indices_index(at, {{ count }}u);
    if (number == OUTSIDE) { return false; }
    # for dimension in range(output.rank)
    (*target_at)[{{ dimension }}] = {{ mod(div("number", steps[dimension]), output.sizes[dimension]) }};
    # endfor
    return true;
}
