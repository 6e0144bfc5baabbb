// A number that the graph holds: output = number.
fn apply() -> output_s {
    return output_s({{ number }});
}
