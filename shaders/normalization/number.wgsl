// A number in place of an absent tensor, or one that an attribute omits.
fn apply() -> output_s {
    return {{ value }};
}
