// The walk over the updates.
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    var rest = number;
    var at: source_at;
    # for dimension in range(source.rank)|reverse
    at[{{ dimension }}] = rest % {{ source.sizes[dimension] }}u;
    rest = rest / {{ source.sizes[dimension] }}u;
    # endfor
    var target_at: output_at;
    if (place(at, &target_at)) { handle(number, at, target_at); }
}
