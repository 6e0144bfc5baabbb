// FILL_VALUE_CONSTANT: output = value, given as the words of its bits
fn apply() -> output_s {
    return output_s({{ words|join("u, ") }}u);
}
