// The walk over the updates: {{ launch.items_per_invocation }} adjacent ones per invocation.
fn locate(number: u32) -> source_at {
    var rest = number{% if step.in_word > 1 %} * {{ step.in_word }}u{% endif %};
    var at: source_at;
    # for dimension in range(source.rank)|reverse
    at[{{ dimension }}] = {{ mod("rest", source.sizes[dimension]) }};
    rest = {{ div("rest", source.sizes[dimension]) }};
    # endfor
    return at;
}
{% if is_part %}
fn run(invocation: u32) {
    let number = invocation{% if launch.items_per_invocation > 1 %} * {{ launch.items_per_invocation }}u{% endif %};
{% else %}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = (id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u){% if launch.items_per_invocation > 1 %} * {{ launch.items_per_invocation }}u{% endif %};
{% endif %}
    if (number >= {{ launch.total }}u) { return; }
    # if run
    var at = locate(number);
    var target_at: output_at;
    if (!place(at, &target_at)) { return; }
    handle(number, target_at, source_load(at));
    # for step in range(1, launch.items_per_invocation)
    at[{{ run[0] }}] += 1u;
    target_at[{{ run[1] }}] += 1u;
    handle(number + {{ step }}u, target_at, source_load(at));
    # endfor
    # else
    {% set inner = source.rank - 1 %}
    # for step in range(launch.items_per_invocation)
    # if step and source.sizes[inner] % (launch.items_per_invocation * in_word) == 0
    var at{{ step }} = at0;
    at{{ step }}[{{ inner }}] += {{ step * in_word }}u;
    # else
    let at{{ step }} = locate(number + {{ step }}u);
    # endif
    var target{{ step }}: output_at;
    let found{{ step }} = {% if launch.total % launch.items_per_invocation and step %}number + {{ step }}u < {{ launch.total }}u && {% endif %}place(at{{ step }}, &target{{ step }});
    # endfor
    # for step in range(launch.items_per_invocation)
    let bits{{ step }} = {% if in_word > 1 %}word(at{{ step }}){% else %}source_load(at{{ step }}){% endif %};
    # endfor
    # for step in range(launch.items_per_invocation)
    if (found{{ step }}) { handle(number + {{ step }}u, target{{ step }}, bits{{ step }}); }
    # endfor
    # endif
}
