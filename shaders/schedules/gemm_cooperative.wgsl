// GEMM, cooperative: a workgroup brings {{ depth }} steps of both operands into workgroup memory at a time, as float16; each of four of
// its subgroups multiplies matrices of {{ side }} x {{ side }} and holds the sums of {{ block }} x {{ block }} of them. At the end the four write one matrix of
// sums each to workgroup memory, whose units all invocations store. (Nothing depends on the size of subgroups, as long as there are four.)
{% macro fetch(name, operand, first) %}
        # for number in range(depth * tile // 1024)
        {
            let task = me + {{ number * 256 }}u;
            # if operand.layout == "along"
            let own = task / {{ depth // 4 }}u;
            let step = (task % {{ depth // 4 }}u) * 4u;
            let unit = vec4<f16>({{ name }}_step({{ name }}_start(batch, {{ first }} + own), start + step));
            # for part in "xyzw"
            {{ name }}_slab[own * {{ depth }}u + step + {{ loop.index0 }}u] = unit.{{ part }};
            # endfor
            # else
            let own = (task % {{ tile // 4 }}u) * 4u;
            let step = task / {{ tile // 4 }}u;
            let unit = vec4<f16>({{ name }}_step({{ name }}_start(batch, ({{ first }} + own) / 4u), start + step));
            # for part in "xyzw"
            {{ name }}_slab[(own + {{ loop.index0 }}u) * {{ depth }}u + step] = unit.{{ part }};
            # endfor
            # endif
        }
        # endfor
{% endmacro %}
alias sum_t = vec4<f32>;
var<workgroup> a_slab: array<f16, {{ tile * depth }}>;
var<workgroup> b_slab: array<f16, {{ tile * depth }}>;
var<workgroup> sums: array<f32, {{ 4 * side * side }}>;
@compute @workgroup_size({{ launch.workgroup }})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) me: u32,
    @builtin(subgroup_id) subgroup: u32,
) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let column_tile = {{ mod("number", across) }} * {{ tile }}u;
    let row_tile = {{ mod(div("number", across), down) }} * {{ tile }}u;
    let batch = {{ div("number", across * down) }};
    let first_row = (subgroup / 2u) * {{ block * side * depth }}u;
    let first_column = (subgroup % 2u) * {{ block * side * depth }}u;
    # for row in range(block)
    # for column in range(block)
    var sum{{ row }}_{{ column }} = coop_mat16x16<f32, C>();
    # endfor
    # endfor
    for (var start = 0u; start < {{ space.inner[0] }}u; start += {{ depth }}u) {
{{ fetch("a", a, "row_tile") }}
{{ fetch("b", b, "column_tile") }}
        workgroupBarrier();
        if (subgroup < 4u) {
            # for step in range(0, depth, side)
            {
                # for row in range(block)
                let a{{ row }} = coopLoadT<coop_mat16x16<f16, A>>(&a_slab[first_row + {{ row * side * depth + step }}u], {{ depth }}u);
                # endfor
                # for column in range(block)
                let b{{ column }} = coopLoad<coop_mat16x16<f16, B>>(&b_slab[first_column + {{ column * side * depth + step }}u], {{ depth }}u);
                # endfor
                # for row in range(block)
                # for column in range(block)
                sum{{ row }}_{{ column }} = coopMultiplyAdd(a{{ row }}, b{{ column }}, sum{{ row }}_{{ column }});
                # endfor
                # endfor
            }
            # endfor
        }
        workgroupBarrier();
    }
    let quarter = me / 64u;
    let row = row_tile + (quarter / 2u) * {{ block * side }}u + (me % 64u) / 4u;
    let column = (column_tile + (quarter % 2u) * {{ block * side }}u) / 4u + me % 4u;
    # for down in range(block)
    # for right in range(block)
    if (subgroup < 4u) { coopStoreT(sum{{ down }}_{{ right }}, &sums[subgroup * {{ side * side }}u], {{ side }}u); }
    workgroupBarrier();
    keep(0u, batch, row + {{ down * side }}u, column + {{ right * side // 4 }}u, sum_t(sums[me * 4u], sums[me * 4u + 1u], sums[me * 4u + 2u], sums[me * 4u + 3u]));
    workgroupBarrier();
    # endfor
    # endfor
}
