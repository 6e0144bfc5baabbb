// The output's coordinates from the indices of part, batch, row and column (or unit of columns).
fn output_place(part: u32, batch: u32, row: u32, column: u32) -> output_at {
    var at: output_at;
    # for digit in digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    return at;
}
