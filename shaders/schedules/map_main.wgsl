// The walk over work items: {{ launch.items_per_invocation }} neighbours of an invocation. (Their number is opaque: some compilers unroll
// loops of known length, and take longer for it.)
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let first = (id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u) * {{ launch.items_per_invocation }}u;
    # if launch.items_per_invocation > 1
    let last = min(first + {{ launch.items_per_invocation }}u, {{ launch.total }}u) + params.zero;
    for (var number = first; number < last; number++) { handle(number); }
    # else
    if (first < {{ launch.total }}u) { handle(first); }
    # endif
}
