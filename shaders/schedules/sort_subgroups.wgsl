// SORT, subgroups: a workgroup sorts a tile of {{ width }} records by a bitonic network and keeps the first {{ kept }}. Each invocation holds {{ held }}
// adjacent records. It compares them with each other, with those of lanes of its subgroup, and through workgroup
// memory with those of others.
{% import "schedules/combine_macros" as combine with context %}
{% include "schedules/locate" %}
var<workgroup> tile: array<record_t, {{ width }}>;
// The record that stays at a place: the first or the last of it and the one to compare it with.
fn put_in_order(mine: record_t, other: record_t, first: bool) -> record_t {
    return select(mine, other, before(other, mine) == first);
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group_id: vec3<u32>, {{ combine.parameters() }}) {
    load_sizes();
    let number = group_id.x + group_id.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
{{ combine.numbered() }}
    let start = at[{{ output.rank - 2 }}] * {{ width }}u;
    # for place in range(held)
    var r{{ place }} = item(at, start + me + {{ place * launch.workgroup }}u);
    # endfor
    for (var run = 2u; run <= {{ width }}u; run *= 2u) {
        # for distance in combine.distances(width).split()|map("int")|reverse
        # set apart = distance // held
        {{ "if (run > %du) " % distance if distance > 1 }}{
            # if distance < held
            # for low in range(held) if not low // distance % 2
            {
                let first = ((me * {{ held }}u + {{ low }}u) & run) == 0u;
                let low = put_in_order(r{{ low }}, r{{ low + distance }}, first);
                r{{ low + distance }} = put_in_order(r{{ low + distance }}, r{{ low }}, !first);
                r{{ low }} = low;
            }
            # endfor
            # else
            let first = ((me & {{ apart }}u) == 0u) == ((me & (run / {{ held }}u)) == 0u);
            # if apart < 128
            {{ "if (size > %du) " % apart if apart >= subgroup }}{
                # for place in range(held)
                r{{ place }} = put_in_order(r{{ place }}, {{ combine.shuffled("subgroupShuffleXor", "r%d" % place, ", %du" % apart) }}, first);
                # endfor
            }
            # endif
            # if apart >= subgroup
            {{ "else " if apart < 128 }}{
                # for place in range(held)
                tile[me + {{ place * launch.workgroup }}u] = r{{ place }};
                # endfor
                workgroupBarrier();
                # for place in range(held)
                r{{ place }} = put_in_order(r{{ place }}, tile[(me ^ {{ apart }}u) + {{ place * launch.workgroup }}u], first);
                # endfor
                workgroupBarrier();
            }
            # endif
            # endif
        }
        # endfor
    }
    let target_place = output_base() + output_unit(at);
    # for place in range(held)
    if (me * {{ held }}u + {{ place }}u < {{ kept }}u) { {{ buffer.store }}(target_place + me * {{ held }}u + {{ place }}u, r{{ place }}); }
    # endfor
}
