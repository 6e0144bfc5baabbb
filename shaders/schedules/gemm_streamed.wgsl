// GEMM, streamed: few rows by columns that are read once. A workgroup holds {{ depth }} steps of {{ tile.rows }} rows in workgroup memory; {{ tile.slices }} invocations
// share the steps of four columns, {{ steps }} times four steps of each in flight, and add their sums at the end.
// {{ "Adjacent invocations read adjacent steps of a column." if b.fetch.steps > 1 else "Adjacent invocations read adjacent columns of a step." }}
// (Where the steps end is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/gemm_macros" as gemm with context %}
# set along = b.fetch.steps > 1
alias sum_t = {{ sum_t }};
var<workgroup> slab: array<array<sum_t, {{ depth // 4 }}>, {{ tile.rows }}>;
fn a_element(start: a_at, step: u32) -> a_t {
    return a_step(start, {{ a_digits }});
}
fn a_unit_of(start: a_at, step: u32) -> sum_t {
    # if a.fetch.steps > 1
    return a_element(start, step);
    # else
    return sum_t(a_element(start, step), a_element(start, step + 1u), a_element(start, step + 2u), a_element(start, step + 3u));
    # endif
}
fn b_units_of(starts: b_starts_t, step: u32) -> array<b_unit_t, 4> {
    # if along
    return b_fetch_steps(starts, {{ b_digits }});
    # else
    return array<b_unit_t, 4>(b_unit_of(starts, step), b_unit_of(starts, step + 1u), b_unit_of(starts, step + 2u), b_unit_of(starts, step + 3u));
    # endif
}
# if not along
fn b_unit_of(starts: b_starts_t, step: u32) -> b_unit_t {
    return b_fetch(starts, {{ b_digits }});
}
# endif
{% macro fetch_own(start, number) %}a_unit_of(own_start{{ number }}, min({{ start }} + own_quad{{ number }} * 4u, stop - 4u)){% endmacro %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
{{ gemm.workgroup_tile() }}
    # if along
    let slice = me % {{ tile.slices }}u;
    let column = column_tile * {{ tile.across }}u + me / {{ tile.slices }}u;
    # else
    let slice = me / {{ tile.across }}u;
    let column = column_tile * {{ tile.across }}u + me % {{ tile.across }}u;
    # endif
    let row = row_tile * {{ tile.rows }}u;
    let columns = b_starts(batch, column);
{{ gemm.sums("sum") }}
    let stop = last * {{ inner_rest }}u + opaque_zero();
    # set tasks = tile.rows * depth // 4
    # if a.fetch.steps > 1
    # for first_task in range(0, tasks, launch.workgroup)
    # set number = loop.index0
    # set task = "(me + %du)" % first_task if first_task else "me"
    # set task = "min(%s, %du)" % (task, tasks - 1) if first_task + launch.workgroup > tasks else task
    let own_row{{ number }} = {{ task }} / {{ depth // 4 }}u;
    let own_quad{{ number }} = {{ task }} % {{ depth // 4 }}u;
    let own_start{{ number }} = a_start(batch, min(row + own_row{{ number }}, {{ a_count - 1 }}u));
    var next{{ number }} = {{ fetch_own("first * %du" % inner_rest, number) }};
    # endfor
    # endif
    for (var start = first * {{ inner_rest }}u; start < stop; start += {{ depth }}u) {
        # if a.fetch.steps > 1
        # for first_task in range(0, tasks, launch.workgroup)
        slab[own_row{{ loop.index0 }}][own_quad{{ loop.index0 }}] = next{{ loop.index0 }};
        # endfor
        # else
        for (var task = me; task < {{ tasks }}u; task += {{ launch.workgroup }}u) {
            let own_row = task / {{ depth // 4 }}u;
            let own_quad = task % {{ depth // 4 }}u;
            let own_start = a_start(batch, min(row + own_row, {{ a_count - 1 }}u));
            slab[own_row][own_quad] = a_unit_of(own_start, min(start + own_quad * 4u, stop - 4u));
        }
        # endif
        workgroupBarrier();
        # if a.fetch.steps > 1
        # for first_task in range(0, tasks, launch.workgroup)
        next{{ loop.index0 }} = {{ fetch_own("start + %du" % depth, loop.index0) }};
        # endfor
        # endif
        let count = min({{ depth }}u, stop - start) / 4u;
        for (var quad = slice; quad < count; quad += {{ steps * tile.slices }}u) {
            # for turn in range(steps)
            let quad{{ turn }} = {{ "quad" if turn == 0 else "quad + %du" % (turn * tile.slices) if whole else "min(quad + %du, count - 1u)" % (turn * tile.slices) }};
            let units{{ turn }} = b_units_of(columns, start + quad{{ turn }} * 4u);
            # endfor
            # for turn in range(steps)
            {{ "if (quad + %du < count) " % (turn * tile.slices) if turn and not whole }}{
                # for row in range(tile.rows)
                let a{{ row }} = slab[{{ row }}][quad{{ turn }}];
                # for part in "xyzw"
                sum{{ row }}_0 += a{{ row }}.{{ part }} * units{{ turn }}[{{ loop.index0 }}];
                # endfor
                # endfor
            }
            # endfor
        }
        workgroupBarrier();
    }
    # for power in range(16, -1, -1) if 2 ** power < tile.slices
    # set half = 2 ** power
    {
        # if along
        let place = me / {{ tile.slices }}u * {{ half }}u + slice % {{ half }}u;
        # else
        let place = slice % {{ half }}u * {{ tile.across }}u + me % {{ tile.across }}u;
        # endif
        if (slice >= {{ half }}u && slice < {{ 2 * half }}u) {
            # for row in range(tile.rows)
            slab[{{ row }}][place] = sum{{ row }}_0;
            # endfor
        }
        workgroupBarrier();
        if (slice < {{ half }}u) {
            # for row in range(tile.rows)
            sum{{ row }}_0 += slab[{{ row }}][place];
            # endfor
        }
        # if half > 1
        workgroupBarrier();
        # endif
    }
    # endfor
    # if tile.slices > 1
    if (slice > 0u) { return; }
    # endif
{{ gemm.keep_all() }}
}
