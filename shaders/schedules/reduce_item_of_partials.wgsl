// A partial result of the row at `at`: the accumulators of a row lie along the last dimension.
fn item(at: output_at, index: u32) -> acc_t {
    var source: partials_at;
    # for dimension in range(partials.rank - 1)
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    source[{{ partials.rank - 1 }}] = index;
    return partials_load(source);
}
