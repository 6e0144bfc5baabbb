// BOOLEAN masks: where the mask is 0, a number is added to the score.
fn apply(score: score_s, mask: mask_s) -> output_s {
    return select({{ score + masked }}, score, mask != 0);
}
