// DIAGONAL_MATRIX1: output = inside where first <= x - y < first + count, else outside; place is x - y modulo 2^32
fn apply(place: place_s, inside: inside_s, outside: outside_s) -> output_s {
    return {{ (place - first < count).select(inside, outside) }};
}
