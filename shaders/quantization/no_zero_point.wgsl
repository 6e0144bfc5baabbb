// An absent zero point: 0
fn apply() -> output_s {
    return output_s();
}
