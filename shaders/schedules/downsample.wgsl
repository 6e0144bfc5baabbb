// DOWNSAMPLE: one invocation sums, with constant weights, {{ stencil.weights|length }} adjacent elements for each of {{ sums|length if not is_along else lanes }} output elements
// along an axis: whole units across it, or with single elements at both ends along it. Elements beyond an edge are the edge's.
{% include "schedules/locate" %}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    let first = at[{{ stencil.dimension }}] * {{ advance }}u;
    var taken = at;
    # if is_along
    # for unit in range(stencil.step)
    taken[{{ stencil.dimension }}] = at[{{ stencil.dimension }}] * {{ stencil.step }}u + {{ unit }}u;
    let unit{{ unit }} = vec{{ lanes }}<f32>(units_load(taken));
    # endfor
    # endif
    # for name, place in near.items()
    # set number = "max(first, %du) - %du" % (-place, -place) if place < 0 else "first + %du" % place
    taken[{{ stencil.dimension }}] = min({{ number }}, {{ stencil.size - 1 }}u);
    let {{ name }} = {{ "f32(source_load(taken))" if is_along else "vec%d<f32>(units_load(taken))" % lanes }};
    # endfor
    # for sum in sums
    # if rows > 1
    taken[{{ stencil.dimension }}] = at[{{ stencil.dimension }}] * {{ rows }}u + {{ loop.index0 }}u;
    if (taken[{{ stencil.dimension }}] < {{ count }}u) {
        {{ buffer.store }}(output_base() + output_unit(taken), output_bits({{ sum }}));
    }
    # else
    {{ buffer.store }}(output_base() + output_unit(at), output_bits({{ sum }}));
    # endif
    # endfor
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number < {{ launch.total }}u) { handle(number); }
}
