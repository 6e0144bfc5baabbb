// What the schedules need to write the output: its types, its place, and the bits of a unit.
{% include "access/types" %}
{% include "access/place" %}
fn output_bits(value: output_t) -> {{ block }} {
    return {{ encoded }};
}
