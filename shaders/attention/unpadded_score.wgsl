// Masks by lengths: the score of padding is a number, whatever the key.
fn apply(score: score_s, inside: inside_s) -> output_s {
    return select({{ masked }}, score, inside != 0u);
}
