// Macros for the parameters of an entry point that give the number of its invocation, and for that number. Invocations that run in
// lockstep are numbered by subgroup and lane, because drivers for CPUs divide for other indices. The first two lanes have numbers
// half of them apart, so that they read each cache line first: llvmpipe loads 64-bit numbers of other lanes by masked broadcasts,
// for which CPUs with AVX-512 do not prefetch.
{% macro parameters() %}{% if launch.lockstep %}@builtin(workgroup_id) group: vec3<u32>, @builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) lanes: u32{% else %}@builtin(global_invocation_id) id: vec3<u32>{% endif %}{% endmacro %}
{% macro numbered() %}
    # set lockstep = launch.lockstep
    # if lockstep
    let invocation = (group.x + group.y * {{ launch.grid[0] }}u) * {{ launch.workgroup }}u + subgroup * lanes + lane;
    let number = invocation / {{ lockstep }}u * {{ lockstep }}u + invocation % 2u * {{ lockstep // 2 }}u + invocation % {{ lockstep }}u / 2u;
    # else
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    # endif
{%- endmacro %}
