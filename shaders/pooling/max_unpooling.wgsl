// MAX_UNPOOLING: output[the element with the number that the index names] = input; a number beyond the output is dropped
fn place(at: source_at, target_at: ptr<function, output_at>) -> bool {
    let number = indices_index(at, {{ count }}u);
    if (number == OUTSIDE) { return false; }
    # for dimension in range(output.rank)
    (*target_at)[{{ dimension }}] = number / {{ steps[dimension] }}u % {{ output.sizes[dimension] }}u;
    # endfor
    return true;
}
