// ACTIVATION_HARDMAX1 of contiguous rows: output = 1 where the element's index is that of its row's first largest,
// else 0. A unit, not longer than a row, lies in one row or two.
fn element(at: output_at) -> output_t {
    let start = at[0] * {{ output.lanes }}u;
    var first_row: first_at;
    var last_row: first_at;
    first_row[0] = {{ div("start", columns) }};
    last_row[0] = {{ div("(start + " ~ (output.lanes - 1) ~ "u)", columns) }};
    let first = first_row[0] * {{ columns }}u + first_index(first_row, {{ columns }}u);
    let last = last_row[0] * {{ columns }}u + first_index(last_row, {{ columns }}u);
    # set numbers = "vec" ~ output.lanes ~ "<u32>"
    let places = {{ numbers }}(start) + {{ numbers }}({{ range(output.lanes)|join("u, ") }}u);
    return select({{ numbers }}(0u), {{ numbers }}(1u), (places == {{ numbers }}(first)) | (places == {{ numbers }}(last)));
}
