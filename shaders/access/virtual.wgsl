// Reads one unit of a virtual tensor: calls the body that computes it.
{% include "access/types" %}
fn {{ name }}_load(at: {{ type_of(name ~ "_at") }}) -> {{ name }}_t {
    return {{ value }};
}
