// An operand in units of four along the inner dimension: four loads hold the units of four steps, transposed.
{% include "schedules/gemm_starts" %}
fn {{ name }}_fetch_steps(starts: {{ type_of(name ~ "_starts_t") }}, {{ parameters }}) -> array<{{ name }}_unit_t, 4> {
    # for lane in range(width)
    let lane{{ lane }} = {{ name }}_step(starts[{{ lane }}], {{ arguments }});
    # endfor
    return array<{{ name }}_unit_t, 4>(
        # for part in "xyzw"
        {{ name }}_unit_t({% for lane in range(width) %}lane{{ lane }}.{{ part }}{% if not loop.last %}, {% endif %}{% endfor %}),
        # endfor
    );
}
