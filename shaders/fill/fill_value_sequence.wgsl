// FILL_VALUE_SEQUENCE: output = start + delta * place, where place is the element's row-major index; integers wrap
fn apply(place: place_s) -> output_s {
    return {{ start + delta * place.to(output.data_type) }};
}
