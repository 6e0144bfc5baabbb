// ARGMIN, ARGMAX of 64-bit integers: as argmin.wgsl, with ranks of two words.
alias acc_t = vec4<u32>; // rank of the element: low word, high word; its number; unused
fn lift(value: input_s, index: u32) -> acc_t {
    return vec4<u32>({{ use(order ~ "_" ~ input.kind) }}(value), index{{ " + %du" % first if first|default(0) }}, 0u);
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let tie = a.y == b.y && a.x == b.x;
    let earlier = b.y < a.y || (b.y == a.y && b.x < a.x) || (tie && b.z {{ ">" if decreasing else "<" }} a.z);
    return select(a, b, earlier);
}
fn finish(acc: acc_t) -> output_s {
    return {{ output.from_u32("acc.z") }};
}
