// MAX_POOLING2, output_indices: the row-major index of the maximum in the whole input
{% include "pooling/chosen_at" %}
fn element(at: output_at) -> output_t {
    let source = chosen_at(at, places_load(at));
    return {% for step in steps %}{{ " + " if not loop.first }}source[{{ loop.index0 }}] * {{ step }}u{% endfor %};
}
