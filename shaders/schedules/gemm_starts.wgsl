// Starts of the rows or columns of a unit. Those past the edge are the last one.
{{ name_type(name ~ "_starts_t", "array<%s, %d>" % (type_of(name ~ "_at"), width)) }}
fn {{ name }}_starts(batch: u32, unit: u32) -> {{ type_of(name ~ "_starts_t") }} {
    var starts: {{ type_of(name ~ "_starts_t") }};
    # for lane in range(width)
    starts[{{ lane }}] = {{ name }}_start(batch, min({{ places[lane] }}, {{ count - 1 }}u));
    # endfor
    return starts;
}
