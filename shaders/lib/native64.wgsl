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

// ---- division: by zero quotient and remainder are all ones; the smallest integer by -1 wraps

fn quotient_u64(a: u64, b: u64) -> u64 {
    return select(a / max(b, 1lu), ~0lu, b == 0lu);
}

fn fmod_u64(a: u64, b: u64) -> u64 {
    return select(a - quotient_u64(a, b) * b, ~0lu, b == 0lu);
}

fn floor_mod_u64(a: u64, b: u64) -> u64 {
    return fmod_u64(a, b);
}

// The value without its sign; that of the smallest integer is 2^63.
fn size_of_i64(a: i64) -> u64 {
    let bits = u64(a);
    return select(bits, 0lu - bits, a < 0li);
}

// Towards zero.
fn quotient_i64(a: i64, b: i64) -> i64 {
    let quotient = quotient_u64(size_of_i64(a), size_of_i64(b));
    return i64(select(quotient, 0lu - quotient, (a ^ b) < 0li && b != 0li));
}

// With the sign of a.
fn fmod_i64(a: i64, b: i64) -> i64 {
    let remainder = fmod_u64(size_of_i64(a), size_of_i64(b));
    return i64(select(remainder, 0lu - remainder, a < 0li && b != 0li));
}

// With the sign of b.
fn floor_mod_i64(a: i64, b: i64) -> i64 {
    let remainder = fmod_i64(a, b);
    return select(remainder, remainder + b, (remainder ^ b) < 0li && remainder != 0li);
}
