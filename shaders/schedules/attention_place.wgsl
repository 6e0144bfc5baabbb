// Coordinates by the numbers of a shared head, of a row, and where there is one of a column; what is left out is 0.
fn {{ name }}_place(batch: u32{% for parameter in parameters %}, {{ parameter }}: u32{% endfor %}) -> {{ name }}_at {
    var at: {{ name }}_at;
    # for digit in digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    return at;
}
