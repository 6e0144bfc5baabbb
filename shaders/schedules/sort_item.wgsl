// The record of the element at a position of the line at `at`; LAST beyond its end.
fn item(at: output_at, place: u32) -> record_t {
    var source: input_at;
    # for dimension in range(input.rank - 1)
    source[{{ dimension }}] = at[{{ dimension }}];
    # endfor
    # if whole
    source[{{ input.rank - 1 }}] = place;
    return record({{ "~" if decreasing }}{{ use("ascending_" ~ kind) }}(input_load(source)), place);
    # else
    source[{{ input.rank - 1 }}] = min(place, {{ input.sizes[-1] - 1 }}u);
    let found = record({{ "~" if decreasing }}{{ use("ascending_" ~ kind) }}(input_load(source)), place);
    return select(LAST, found, place < {{ input.sizes[-1] }}u);
    # endif
}
