// MAP, along runs: one invocation computes {{ units }} adjacent units along a dimension (with lanes across it, several runs of them), and reads
// constant operands once. (Their number is opaque: some compilers unroll loops of known length, for seconds.)
{% include "schedules/locate" %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
    # for name in fixed
    let {{ name }} = {{ name }}_load(at);
    # endfor
    for (var index = 0u; index < {{ units }}u + opaque_zero(); index++) {
        at[{{ axis }}] = index;
        {{ buffer.store }}(output_base() + output_unit(at), output_bits(element(at{% for name in fixed %}, {{ name }}{% endfor %})));
    }
}
