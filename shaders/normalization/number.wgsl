// A number in place of a tensor that is not given, or that an attribute leaves out.
fn apply() -> output_s {
    return {{ value }};
}
