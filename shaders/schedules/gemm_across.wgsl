// An operand in units of four along its own dimension: a unit of a step is one load, or two are. Past the edge the last one counts.
alias {{ name }}_starts_t = array<{{ name }}_at, 1>;
fn {{ name }}_starts(batch: u32, unit: u32) -> {{ name }}_starts_t {
    return {{ name }}_starts_t({{ name }}_start(batch, min(unit, {{ count // width - (2 if paired else 1) }}u)));
}
fn {{ name }}_fetch(starts: {{ name }}_starts_t, {{ parameters }}) -> {{ name }}_{{ "pair_t" if paired else "unit_t" }} {
    return {{ name }}_step(starts[0], {{ arguments }});
}
