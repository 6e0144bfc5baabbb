// CANDIDATES: the records of all elements of the groups of some records. The elements of a group are spaced by the number of
// groups, so that a position determines its group.
{% include "schedules/locate" %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
    var source: best_at = at;
    source[{{ best.rank - 1 }}] = at[{{ best.rank - 1 }}] / {{ group }}u;
    let chosen = {{ mod("place_of(best_load(source))", groups) }};
    {{ buffer.store }}(output_base() + output_unit(at), item(at, chosen + at[{{ best.rank - 1 }}] % {{ group }}u * {{ groups }}u));
}
