// Declarations for writing the output: its types, its address, and the bits of a unit.
{% include "access/types" %}
{% include "access/place" %}
fn output_bits(value: output_t) -> {{ block }} {
    return {{ encoded }};
}
