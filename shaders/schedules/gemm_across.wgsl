// An operand in units of four along its own dimension: a unit of a step is one load, or two are. Past the edge the last one counts.
{{ name_type(name ~ "_starts_t", "array<%s, 1>" % type_of(name ~ "_at")) }}
fn {{ name }}_starts(batch: u32, unit: u32) -> {{ type_of(name ~ "_starts_t") }} {
    return {{ type_of(name ~ "_starts_t") }}({{ name }}_start(batch, min(unit, {{ count // width - (2 if paired else 1) }}u)));
}
fn {{ name }}_fetch(starts: {{ type_of(name ~ "_starts_t") }}, {{ parameters }}) -> {{ type_of(name ~ ("_pair_t" if paired else "_unit_t")) }} {
    return {{ name }}_step(starts[0], {{ arguments }});
}
