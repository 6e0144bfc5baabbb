// As record.wgsl, with ranks of two words; the last word is unused.
alias record_t = vec4<u32>;
const LAST = vec4<u32>(0xffffffffu, 0x7fffffffu, 0x7fffffffu, 0u);
fn record(rank: vec2<u32>, place: u32) -> record_t {
    return vec4<u32>(rank.x, rank.y ^ 0x80000000u, place, 0u);
}
fn place_of(value: record_t) -> u32 {
    return value.z;
}
fn before(first: record_t, second: record_t) -> bool {
    let a = bitcast<vec4<i32>>(first);
    let b = bitcast<vec4<i32>>(second);
    let low = (first.x < second.x) | ((first.x == second.x) & (a.z < b.z));
    return (a.y < b.y) | ((a.y == b.y) & low);
}
