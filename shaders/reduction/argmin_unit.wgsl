// ARGMIN, ARGMAX in units of {{ lanes }} elements: a walk keeps the first rank and the unit where it was, and looks up at its end which
// element of that unit has it.
{% set names = ["x", "y", "z", "w"][:lanes] %}
{% set has_nan = input.kind == "f32" %}
{% set rank = order ~ ("_with_nans_" if has_nan else "_") ~ input.kind %}
fn rank_of_unit(unit: input_t) -> u32 {
    var rank = {{ rank }}(unit.x);
    # for name in names[1:]
    rank = min(rank, {{ rank }}(unit.{{ name }}));
    # endfor
    return {{ "with_one_nan(rank)" if has_nan else "rank" }};
}
fn is_before(rank: u32, best: u32) -> bool {
    return rank {{ "<=" if decreasing else "<" }} best;
}
fn in_unit(unit: input_t, index: u32, rank: u32) -> acc_t {
    var number = 0u;
    # for name in (names if decreasing else names|reverse)
    number = select(number, {{ names.index(name) }}u, lift(unit.{{ name }}, 0u).x == rank);
    # endfor
    return acc_t(rank, index * {{ lanes }}u + number);
}
