// Starts of the rows or columns of a unit. Those past the edge are the last one.
alias {{ name }}_starts_t = array<{{ name }}_at, {{ width }}>;
fn {{ name }}_starts(batch: u32, unit: u32) -> {{ name }}_starts_t {
    var starts: {{ name }}_starts_t;
    # for lane in range(width)
    starts[{{ lane }}] = {{ name }}_start(batch, min({{ places[lane] }}, {{ count - 1 }}u));
    # endfor
    return starts;
}
