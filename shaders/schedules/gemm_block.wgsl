// The units of four steps, each by itself.
fn {{ name }}_fetch_steps(starts: {{ name }}_starts_t, {{ parameters }}) -> array<{{ name }}_unit_t, 4> {
    return array<{{ name }}_unit_t, 4>(
        # for step in range(4)
        {{ name }}_fetch(starts, {{ arguments }} + {{ step }}u),
        # endfor
    );
}
