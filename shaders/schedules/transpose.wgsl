// TRANSPOSE: one invocation copies a square of {{ lanes }} x {{ lanes }} elements, reading whole units along one dimension and writing
// whole units along the other.
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    var rest = number;
    var tile: output_at;
    # for digit in digits
    tile[{{ digit.dimension }}] += {{ mod("rest", digit.count) }} * {{ digit.scale }}u;
    rest = {{ div("rest", digit.count) }};
    # endfor
    var at = tile;
    # for row in range(lanes)
    at[{{ output_dimension }}] = tile[{{ output_dimension }}] * {{ lanes }}u + {{ row }}u;
    let row{{ row }} = input_load(at);
    # endfor
    at = tile;
    # for column in columns
    at[{{ source_dimension }}] = tile[{{ source_dimension }}] * {{ lanes }}u + {{ loop.index0 }}u;
    {{ buffer.store }}(output_base() + output_unit(at), {{ column }});
    # endfor
}
