// MAX_POOLING2: output = input at the index of the window's maximum
{% include "pooling/chosen_at" %}
fn element(at: output_at) -> output_t {
    return input_load(chosen_at(at, places_index(at, {{ count }}u)));
}
