// SORT, best: one invocation finds the first record of a group. Groups are spread over the whole line, so that adjacent
// invocations read adjacent elements.
{% include "schedules/locate" %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
    let group = at[{{ output.rank - 2 }}];
    var best = item(at, group);
    for (var place = 1u; place < {{ width }}u; place++) {
        let next = item(at, group + place * {{ output.sizes[-2] }}u);
        best = select(best, next, before(next, best));
    }
    {{ buffer.store }}(output_base() + output_unit(at), best);
}
