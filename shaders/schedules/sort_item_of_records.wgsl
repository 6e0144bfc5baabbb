// The record at an index of the line at `at`; LAST beyond its end.
fn item(at: output_at, number: u32) -> record_t {
    var source: records_at;
    # for dimension in range(records.rank - 1)
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    source[{{ records.rank - 1 }}] = min(number, {{ records.sizes[-1] - 1 }}u);
    return select(LAST, records_load(source), number < {{ records.sizes[-1] }}u);
}
