// The walk over units of which an invocation takes {{ launch.items_per_invocation }}, a workgroup apart. It reads all of them before it writes the first one, so
// that their reads overlap. Past the end it reads the last unit again, and writes nothing.
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    load_sizes();
    let first = (group.x + group.y * {{ launch.grid[0] }}u) * {{ launch.workgroup * launch.items_per_invocation }}u + lane;
    # for item in range(launch.items_per_invocation)
    # set number = "first" ~ (" + %du" % (item * launch.workgroup) if item else "")
    # if launch.is_full
    let number{{ item }} = {{ number }};
    # else
    let number{{ item }} = min({{ number }}, {{ launch.total - 1 }}u);
    # endif
    var at{{ item }}: output_at;
    _ = locate(number{{ item }}, &at{{ item }});
    let bits{{ item }} = output_bits(element(at{{ item }}));
    # endfor
    # for item in range(launch.items_per_invocation)
    # if launch.is_full
    {{ buffer.store }}(output_base() + output_unit(at{{ item }}), bits{{ item }});
    # else
    if (first + {{ item * launch.workgroup }}u < {{ launch.total }}u) { {{ buffer.store }}(output_base() + output_unit(at{{ item }}), bits{{ item }}); }
    # endif
    # endfor
}
