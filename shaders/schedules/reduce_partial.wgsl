// REDUCE, partial: each of {{ parts }} invocations of a row merges every {{ parts }}-th element, neighbours reading neighbours.
fn element(at: output_at) -> output_t {
    let first = at[{{ output.rank - 1 }}];
    var acc = item(at, first);
    for (var index = first + {{ parts }}u; index < {{ count }}u; index += {{ parts }}u) { acc = merge(acc, item(at, index)); }
    return acc;
}
