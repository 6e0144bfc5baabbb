// MAP, by blocks: an invocation looks up the position of a block of {{ units }} units once, and copies it unit by unit.
{% include "schedules/locate" %}
fn store(at: output_at, bits: output_t) {
    {{ buffer.store }}(output_base() + output_unit(at), output_bits(bits));
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
    var source: input_at;
    let inside = place(at, &source);
    if (inside) {
        for (var index = 0u; index < {{ units }}u; index++) {
            at[{{ dimension }}] = index;
            source[{{ followed }}] = index;
            store(at, input_load(source));
        }
    } else {
        for (var index = 0u; index < {{ units }}u; index++) {
            at[{{ dimension }}] = index;
            store(at, output_t());
        }
    }
}
