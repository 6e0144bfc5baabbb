// REDUCE, serial: one invocation walks the whole row.
fn element(at: output_at) -> output_t {
    var acc = item(at, 0u);
    for (var index = 1u; index < {{ count }}u; index++) { acc = merge(acc, item(at, index)); }
    return finish(acc);
}
