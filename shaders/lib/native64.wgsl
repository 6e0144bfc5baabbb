// Between pairs of words and the adapter's own 64-bit integers. i64(u32) sign-extends in naga: go through u64.

fn u64_of_words(a: vec2<u32>) -> u64 {
    return (u64(a.y) << 32u) | u64(a.x);
}

fn i64_of_words(a: vec2<u32>) -> i64 {
    return i64(u64_of_words(a));
}

fn words_of_u64(a: u64) -> vec2<u32> {
    return vec2<u32>(u32(a & 4294967295lu), u32(a >> 32u));
}

fn words_of_i64(a: i64) -> vec2<u32> {
    return words_of_u64(u64(a));
}

// naga takes a bitcast between f64 and u64 alone, so a fused kernel with both needs both features.
fn words_of_f64(a: f64) -> vec2<u32> {
    return words_of_u64(bitcast<u64>(a));
}

fn f64_of_words(a: vec2<u32>) -> f64 {
    return bitcast<f64>(u64_of_words(a));
}
