// ELEMENT_WISE_IF: output = a where condition is not 0, else b; elements are bits
fn apply(condition: condition_s, a: a_s, b: b_s) -> output_s {
    return {{ (condition > 0).select(a, b) }};
}
