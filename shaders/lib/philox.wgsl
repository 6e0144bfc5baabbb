// Philox 4x32-10, the counter-based generator of Random123: a block of four words from a 128-bit counter and a 64-bit
// key. The counter's first word is its lowest.

const PHILOX_MULTIPLIER_X = 0xd2511f53u;
const PHILOX_MULTIPLIER_Z = 0xcd9e8d57u;
const PHILOX_KEY_STEP = vec2<u32>(0x9e3779b9u, 0xbb67ae85u); // golden ratio, square root of 3

// One round: the products' high halves are mixed with the other words and the key.
fn philox_round(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    let x = wide_product(PHILOX_MULTIPLIER_X, counter.x);
    let z = wide_product(PHILOX_MULTIPLIER_Z, counter.z);
    return vec4<u32>(z.y ^ counter.y ^ key.x, z.x, x.y ^ counter.w ^ key.y, x.x);
}

// The block of a counter: ten rounds.
fn philox_block(counter: vec4<u32>, key: vec2<u32>) -> vec4<u32> {
    var block = counter;
    for (var turn = 0u; turn < 10u; turn++) {
        block = philox_round(block, key + turn * PHILOX_KEY_STEP);
    }
    return block;
}

// The counter so many blocks later, modulo 2^128.
fn counter_after(counter: vec4<u32>, blocks: u32) -> vec4<u32> {
    let low = add_words(counter.xy, vec2<u32>(blocks, 0u));
    let is_over = less_u64_words(low, counter.xy);
    return vec4<u32>(low, add_words(counter.zw, vec2<u32>(select(0u, 1u, is_over), 0u)));
}
