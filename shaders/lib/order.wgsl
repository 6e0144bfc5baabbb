// Ranks: unsigned numbers that compare as the values do, with NaN after everything in both directions.

fn ascending_f32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) { return 0xffffffffu; }
    if ((bits & 0x7fffffffu) == 0u) { return 0x80000000u; } // both zeros are one
    return select(bits | 0x80000000u, ~bits, (bits >> 31u) == 1u);
}

fn descending_f32(x: f32) -> u32 {
    let rank = ascending_f32(x);
    return select(~rank, rank, rank == 0xffffffffu);
}

fn ascending_u32(x: u32) -> u32 {
    return x;
}

fn descending_u32(x: u32) -> u32 {
    return ~x;
}

fn ascending_i32(x: i32) -> u32 {
    return bitcast<u32>(x) ^ 0x80000000u;
}

fn descending_i32(x: i32) -> u32 {
    return ~ascending_i32(x);
}

fn ascending_u64_words(x: vec2<u32>) -> vec2<u32> {
    return x;
}

fn descending_u64_words(x: vec2<u32>) -> vec2<u32> {
    return ~x;
}

fn ascending_i64_words(x: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(x.x, x.y ^ 0x80000000u);
}

fn descending_i64_words(x: vec2<u32>) -> vec2<u32> {
    return ~ascending_i64_words(x);
}
