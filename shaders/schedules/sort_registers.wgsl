// SORT, registers: one invocation sorts a tile of {{ width }} records by a network and keeps the first {{ kept }}.
{% include "schedules/locate" %}
fn put_in_order(first: ptr<function, record_t>, second: ptr<function, record_t>) {
    let a = *first;
    let b = *second;
    let swapped = before(b, a);
    *first = select(a, b, swapped);
    *second = select(b, a, swapped);
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
    let start = at[{{ output.rank - 2 }}] * {{ width }}u;
    # for place in range(width)
    var r{{ place }} = item(at, start + {{ place }}u);
    # endfor
    # for first, second in network
    put_in_order(&r{{ first }}, &r{{ second }});
    # endfor
    let target_place = output_base() + output_unit(at);
    # for place in range(kept)
    {{ buffer.store }}(target_place + {{ place }}u, r{{ place }});
    # endfor
}
