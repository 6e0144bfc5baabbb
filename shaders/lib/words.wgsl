// 64-bit integers as pairs of words, low word first: for adapters without 64-bit arithmetic.

fn add_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn subtract_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn negate_words(a: vec2<u32>) -> vec2<u32> {
    return subtract_words(vec2<u32>(0u), a);
}

// All 64 bits of a product of words, from four products of halves.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let cross = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (cross & 0xffffu);
    return vec2<u32>((other << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (cross >> 16u) + (other >> 16u));
}

fn multiply_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let product = wide_product(a.x, b.x);
    return vec2<u32>(product.x, product.y + a.x * b.y + a.y * b.x);
}

// Shifts by 0 to 63 bits. A shift of a word by 32 is undefined, so it is done in two steps.
fn shift_left_words(a: vec2<u32>, count: u32) -> vec2<u32> {
    if (count >= 32u) { return vec2<u32>(0u, a.x << (count - 32u)); }
    return vec2<u32>(a.x << count, (a.y << count) | ((a.x >> 1u) >> (31u - count)));
}

fn shift_right_words(a: vec2<u32>, count: u32) -> vec2<u32> {
    if (count >= 32u) { return vec2<u32>(a.y >> (count - 32u), 0u); }
    return vec2<u32>((a.x >> count) | ((a.y << 1u) << (31u - count)), a.y >> count);
}

fn less_u64_words(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn less_i64_words(a: vec2<u32>, b: vec2<u32>) -> bool {
    return less_u64_words(a ^ vec2<u32>(0u, 0x80000000u), b ^ vec2<u32>(0u, 0x80000000u));
}

fn is_negative_words(a: vec2<u32>) -> bool {
    return (a.y >> 31u) == 1u;
}

fn absolute_words(a: vec2<u32>) -> vec2<u32> {
    return select(a, negate_words(a), is_negative_words(a));
}
