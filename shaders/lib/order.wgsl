// Ranks: unsigned numbers that compare as the values do, with NaN after everything in both directions.

// The bits as a number in two's complement, of which both zeros are 0, and the infinities 0x7f800000 and its opposite.
fn signed_order_f32(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = bitcast<u32>(bitcast<i32>(bits) >> 31u);
    return (bits ^ (sign >> 1u)) - sign;
}

// The first infinity is 0, the other one 0xff000000. NaN of either sign lies beyond it, modulo 2^32.
fn ascending_f32(x: f32) -> u32 {
    return min(signed_order_f32(x) + 0x7f800000u, 0xff000001u);
}

fn descending_f32(x: f32) -> u32 {
    return min(0x7f800000u - signed_order_f32(x), 0xff000001u);
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
