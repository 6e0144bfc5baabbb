// ARGMIN, ARGMAX in units{{ " of %d elements" % lanes if lanes > 1 }}: a loop tracks the first rank and its unit, and finds its element at the
// end.
{% set elements = ["unit.x", "unit.y", "unit.z", "unit.w"][:lanes] if lanes > 1 else ["unit"] %}
# if input.kind == "f32"
// Of floats as integers, {{ "unsigned" if order == "ascending" else "signed" }}: the least, which is that of the first number if no number has the {{ "minus" if order == "ascending" else "plus" }} sign, and the largest,
// moved so that numbers with that sign are the largest and NaN the least. Cheaper than the ranks of all.
# set word = "u32" if order == "ascending" else "i32"
alias seen_t = vec2<{{ word }}>;
fn seen_one(value: f32) -> seen_t {
    let bits = bitcast<{{ word }}>(value);
    return seen_t(bits, bits + 0x7fffff);
}
fn joined(a: seen_t, b: seen_t) -> seen_t {
    return seen_t(min(a.x, b.x), max(a.y, b.y));
}
fn rank_of(both: seen_t) -> u32 {
    let bits = select(both.x, both.y - 0x7fffff, both.y >= {{ "0x807fffffu" if order == "ascending" else "0x7fffff" }});
    return {{ use(order ~ "_f32") }}(bitcast<f32>(bits));
}
# else
alias seen_t = u32;
fn seen_one(value: input_s) -> seen_t {
    return {{ use(order ~ "_" ~ input.kind) }}(value);
}
fn joined(a: seen_t, b: seen_t) -> seen_t {
    return min(a, b);
}
fn rank_of(rank: seen_t) -> u32 {
    return rank;
}
# endif
fn seen(unit: input_t) -> seen_t {
    return {{ "joined(" * (lanes - 1) }}seen_one({{ elements[0] }}){% for element in elements[1:] %}, seen_one({{ element }})){% endfor %};
}
fn is_before(rank: u32, best: u32) -> bool {
    return rank {{ "<=" if decreasing else "<" }} best;
}
fn in_unit(unit: input_t, index: u32, rank: u32) -> acc_t {
    var number = 0u;
    # for element in (elements if decreasing else elements|reverse)
    number = select(number, {{ elements.index(element) }}u, lift({{ element }}, 0u).x == rank);
    # endfor
    return acc_t(rank, index * {{ lanes }}u + number{{ " + %du" % first if first|default(0) }});
}
