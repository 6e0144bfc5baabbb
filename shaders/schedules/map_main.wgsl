// The walk over work items: {{ launch.items_per_invocation }} adjacent ones per invocation.
{% if is_part %}
fn run(invocation: u32) {
    let first = invocation * {{ launch.items_per_invocation }}u;
{% else %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let first = (id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u) * {{ launch.items_per_invocation }}u;
{% endif %}
    # if launch.in_loop
    let last = min(first + {{ launch.items_per_invocation }}u, {{ launch.total }}u) + opaque_zero(); // the driver does not unroll
    for (var number = first; number < last; number++) { handle(number); }
    # else
    # for place in range(launch.items_per_invocation)
    if (first + {{ place }}u >= {{ launch.total }}u) { return; }
    handle(first + {{ place }}u);
    # endfor
    # endif
}
