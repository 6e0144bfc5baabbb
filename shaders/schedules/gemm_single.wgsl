// An operand element by element: a unit of a step is composed of that many loads.
{% include "schedules/gemm_starts" %}
fn {{ name }}_fetch(starts: {{ type_of(name ~ "_starts_t") }}, {{ parameters }}) -> {{ name }}_unit_t {
    return {{ name }}_unit_t({% for lane in range(width) %}{{ name }}_step(starts[{{ lane }}], {{ arguments }}){% if not loop.last %}, {% endif %}{% endfor %});
}
