// Several kernels in one: each has some of the invocations, from a whole subgroup on.
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let invocation = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    # for index in range(parts|length)
    if (invocation < {{ ends[index] }}u) {
        part{{ index }}_run(invocation{% if index %} - {{ starts[index] }}u{% endif %});
        return;
    }
    # endfor
}
