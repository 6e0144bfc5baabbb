// Reads one index and resolves it against the size of the dimension it indexes: negative ones count from the end, and
// indices outside become OUTSIDE.
{% include "access/types" %}
{% include "access/place" %}
fn {{ name }}_index(at: {{ type_of(name ~ "_at") }}, size: u32) -> u32 {
    return {{ use("index_of_" ~ index_type) }}({{ buffer.load }}({{ name }}_base() + {{ name }}_unit(at)), size);
}
