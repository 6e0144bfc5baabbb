// The same bits in every element, for bodies that only copy: two words, which narrow elements fill several times.
fn element(at: output_at) -> output_t {
    # set bits = output.data_type.bits * output.lanes
    return output_t({% for place in range([bits // 32, 1]|max) %}{{ ", " if place }}{{ words[place % 2] % 2 ** ([bits, 32]|min) }}u{% endfor %});
}
