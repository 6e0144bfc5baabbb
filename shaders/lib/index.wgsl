// Indices: resolved against the size of the dimension they index. Negative ones count from the end.

// No dimension is this large (a tensor has at most 2^32 - 1 elements), so it stands for "outside".
const OUTSIDE = 0xffffffffu;

fn index_of_u32(word: u32, size: u32) -> u32 {
    return select(OUTSIDE, word, word < size);
}

fn index_of_i32(word: u32, size: u32) -> u32 {
    let distance = 0u - word; // of a negative index from the end
    let from_end = (word >> 31u) == 1u && distance <= size;
    let from_start = (word >> 31u) == 0u && word < size;
    return select(select(OUTSIDE, word, from_start), size - distance, from_end);
}

fn index_of_u64(words: vec2<u32>, size: u32) -> u32 {
    return select(OUTSIDE, words.x, words.y == 0u && words.x < size);
}

fn index_of_i64(words: vec2<u32>, size: u32) -> u32 {
    let distance = 0u - words.x; // of a negative index from the end
    let from_end = words.y == 0xffffffffu && words.x != 0u && distance <= size;
    let from_start = words.y == 0u && words.x < size;
    return select(select(OUTSIDE, words.x, from_start), size - distance, from_end);
}
