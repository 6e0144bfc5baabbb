// GEMM, small: an output's sum of products, step by step, or four steps at once where both operands have them side by side.
// (The ends of loops are opaque: some compilers unroll loops of known length, for half a minute.)
# set columns_at = output.rank - (b.rank - batch - inner|length)
# set outer = 1 if parts > 1 else 0
fn element(at: output_at) -> output_t {
    var a_place: a_at;
    var b_place: b_at;
    # for dimension in range(batch)
    a_place[{{ dimension }}] = at[{{ dimension + outer }}];
    b_place[{{ dimension }}] = at[{{ dimension + outer }}];
    # endfor
    # for dimension in range(rows)
    a_place[{{ batch + dimension }}] = at[{{ outer + batch + dimension }}];
    # endfor
    # for dimension in range(columns_at, output.rank)
    b_place[{{ batch + inner|length + dimension - columns_at }}] = at[{{ dimension }}];
    # endfor
    # if parts > 1
    let first = at[0] * {{ share }}u;
    let last = min(first + {{ share }}u, {{ inner[0] }}u);
    # else
    let first = 0u;
    let last = {{ inner[0] }}u;
    # endif
    # if chunk
    var total = a_t();
    for (var start = first; start < last; start += {{ chunk }}u) {
    let stop = min(start + {{ chunk }}u, last) + opaque_zero();
    # else
    let start = first;
    let stop = last + opaque_zero();
    # endif
    var sum = a_t();
    # for size in inner
    # set each = step if loop.last else 1
    for (var k{{ loop.index0 }} = {{ "start" if loop.first else "0u" }}; k{{ loop.index0 }} < {{ "stop" if loop.first else size ~ "u + opaque_zero()" }}; k{{ loop.index0 }} += {{ each }}u) {
    a_place[{{ batch + rows + loop.index0 }}] = k{{ loop.index0 }}{{ " / 4u" if each == 4 else "" }};
    b_place[{{ batch + loop.index0 }}] = k{{ loop.index0 }}{{ " / 4u" if each == 4 else "" }};
    # endfor
        sum += a_load(a_place) * b_load(b_place);
    # for size in inner
    }
    # endfor
    # if chunk
    total += sum;
    }
    # else
    let total = sum;
    # endif
    return {{ "(total.x + total.y) + (total.z + total.w)" if step == 4 else "total" }};
}
