// Words of four bytes.

// Four bytes of each of four rows become those of the columns.
fn transposed_bytes(rows: vec4<u32>) -> vec4<u32> {
    let even = (rows.xz & vec2<u32>(0xff00ffu)) | ((rows.yw & vec2<u32>(0xff00ffu)) << vec2<u32>(8u));
    let odd = ((rows.xz >> vec2<u32>(8u)) & vec2<u32>(0xff00ffu)) | (rows.yw & vec2<u32>(0xff00ff00u));
    return vec4<u32>(
        (even.x & 0xffffu) | (even.y << 16u),
        (odd.x & 0xffffu) | (odd.y << 16u),
        (even.x >> 16u) | (even.y & 0xffff0000u),
        (odd.x >> 16u) | (odd.y & 0xffff0000u),
    );
}
// The lower four nibbles of a word, numbers from 0 to 15, less 8, as four bytes.
fn signed_nibbles(word: u32) -> u32 {
    let half = word & 0xffffu;
    let pairs = (half | (half << 8u)) & 0xff00ffu;
    return (((pairs | (pairs << 4u)) & 0xf0f0f0fu) + 0x78787878u) ^ 0x80808080u;
}
// The first and the third byte of two words.
fn even_bytes(first: u32, second: u32) -> u32 {
    let low = (first & 0xffu) | ((first >> 8u) & 0xff00u);
    let high = (second & 0xffu) | ((second >> 8u) & 0xff00u);
    return low | (high << 16u);
}
