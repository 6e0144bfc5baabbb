// ARGMIN, ARGMAX: the row-major index over the axes of the element that comes first in {{ order }} order.
// NaN comes after everything; of equal elements the axis direction decides.
alias acc_t = vec2<u32>; // rank of the element, its number
fn lift(value: input_s, index: u32) -> acc_t {
    return vec2<u32>({{ use(order ~ "_" ~ input.kind) }}(value), index{{ " + %du" % first if first|default(0) }});
}
fn merge(a: acc_t, b: acc_t) -> acc_t {
    let earlier = (b.x < a.x) | ((b.x == a.x) & (b.y {{ ">" if decreasing else "<" }} a.y));
    return select(a, b, earlier);
}
fn finish(acc: acc_t) -> output_s {
    return {{ output.from_u32("acc.y") }};
}
