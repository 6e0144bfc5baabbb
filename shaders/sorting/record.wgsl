// A record: the rank of an element and its position. Ranks are shifted so that they compare as signed numbers, which is faster on
// CPUs.
alias record_t = vec2<u32>;
const LAST = vec2<u32>(0x7fffffffu);
fn record(rank: u32, place: u32) -> record_t {
    return vec2<u32>(rank ^ 0x80000000u, place);
}
fn place_of(value: record_t) -> u32 {
    return value.y;
}
fn before(first: record_t, second: record_t) -> bool {
    let a = bitcast<vec2<i32>>(first);
    let b = bitcast<vec2<i32>>(second);
    return (a.x < b.x) | ((a.x == b.x) & (a.y < b.y));
}
