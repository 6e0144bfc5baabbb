// Coordinates from the indices of a shared head, of a row, and optionally of a column; omitted ones are 0.
fn {{ name }}_place(batch: u32{% for parameter in parameters %}, {{ parameter }}: u32{% endfor %}) -> {{ type_of(name ~ "_at") }} {
    var at: {{ type_of(name ~ "_at") }};
    # for digit in digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    return at;
}
