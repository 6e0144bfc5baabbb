// How the invocations of a workgroup combine an accumulator of each: `together` gives that of all, `scanned` also those of
// all invocations before. The order of merges depends on the sizes of workgroup and subgroups alone.
// Without subgroups, they meet in workgroup memory, whose halves are merged turn by turn.
// With subgroups, invocations shuffle first; then the results of subgroups, of which workgroup memory holds one each, are
// merged by every subgroup in the same way. A subgroup may have any number of lanes from `subgroup` on. Invocations are numbered by
// subgroup and lane, so only full subgroups are assumed, not how a driver spreads invocations over them.
{% set farthest = [launch.workgroup, 128]|min %}{% set carried = carried|default(("", "")) %}
{% macro distances(end) %}{% for power in range(10) if 2 ** power < end %}{{ " " if power }}{{ 2 ** power }}{% endfor %}{% endmacro %}
{% macro shuffled(operation, value, more="") %}{{ carried[1] }}({{ operation }}({{ carried[0] }}({{ value }}){{ more }})){% endmacro %}
{% macro parameters() %}{% if subgroup %}@builtin(subgroup_id) subgroup: u32, @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) lanes: u32{% else %}@builtin(local_invocation_index) me: u32{% endif %}{% endmacro %}
{% macro numbered() %}
    # if subgroup
    let me = subgroup * lanes + lane;
    let size = min(lanes, {{ launch.workgroup }}u);
    # endif
{%- endmacro %}
{% macro call(function, mine) %}{{ function }}({{ mine }}, {{ "subgroup, lane, size" if subgroup else "me" }}){% endmacro %}
{% macro declared() %}{{ "subgroup: u32, lane: u32, size: u32" if subgroup else "me: u32" }}{% endmacro %}
{% macro several() %}{{ "if (size < %du) " % launch.workgroup if launch.workgroup <= 128 }}{% endmacro %}
{% macro parts(name, prefix) %}
        // As many of the results in each of `spread` lanes, and over again.
        let count = {{ launch.workgroup }}u / size;
        let spread = min(count, size);
        let share = count / spread;
        let first = (lane * share) & (count - 1u);
        var {{ name }} = {{ prefix }}parts[first];
        for (var next = 1u; next < share; next++) { {{ name }} = {{ prefix }}merge({{ name }}, {{ prefix }}parts[first + next]); }
{%- endmacro %}
{% macro together(prefix="", valid=launch.workgroup) %}
# if subgroup
var<workgroup> {{ prefix }}parts: array<{{ prefix }}acc_t, {{ launch.workgroup // subgroup }}>;
fn {{ prefix }}together(mine: {{ prefix }}acc_t, {{ declared() }}) -> {{ prefix }}acc_t {
    var acc = mine;
    # for distance in distances(farthest).split()
    {{ "if (size > %su) " % distance if distance|int >= subgroup }}{ acc = {{ prefix }}merge(acc, {{ shuffled("subgroupShuffleXor", "acc", ", %su" % distance) }}); }
    # endfor
    {{ several() }}{
        if (lane == 0u) { {{ prefix }}parts[subgroup] = acc; }
        workgroupBarrier();
{{ parts("all", prefix) }}
        # for distance in distances(launch.workgroup ** 0.5).split()
        if (spread > {{ distance }}u) { all = {{ prefix }}merge(all, {{ shuffled("subgroupShuffleXor", "all", ", %su" % distance) }}); }
        # endfor
        acc = all;
    }
    return {{ shuffled("subgroupBroadcastFirst", "acc") }};
}
# else
var<workgroup> {{ prefix }}parts: array<{{ prefix }}acc_t, {{ launch.workgroup }}>;
fn {{ prefix }}together(mine: {{ prefix }}acc_t, {{ declared() }}) -> {{ prefix }}acc_t {
    {{ prefix }}parts[me] = mine;
    workgroupBarrier();
    for (var half = {{ launch.workgroup // 2 }}u; half > 0u; half = half / 2u) {
        if (me < half{{ " && me + half < %su" % valid if valid != launch.workgroup }}) { {{ prefix }}parts[me] = {{ prefix }}merge({{ prefix }}parts[me], {{ prefix }}parts[me + half]); }
        workgroupBarrier();
    }
    return {{ prefix }}parts[0];
}
# endif
{% endmacro %}
{% macro scanned() %}
struct scanned_t { before: acc_t, all: acc_t }
# if subgroup
var<workgroup> parts: array<acc_t, {{ launch.workgroup // subgroup }}>;
fn scanned(mine: acc_t, {{ declared() }}) -> scanned_t {
    var before = start();
    var all = mine;
    # for distance in distances(farthest).split()
    {{ "if (size > %su) " % distance if distance|int >= subgroup }}{
        let other = {{ shuffled("subgroupShuffleXor", "all", ", %su" % distance) }};
        if ((lane & {{ distance }}u) != 0u) { before = {{ "other" if loop.first else "merge(other, before)" }}; }
        all = merge(all, other);
    }
    # endfor
    {{ several() }}{
        workgroupBarrier();
        if (lane == 0u) { parts[subgroup] = all; }
        workgroupBarrier();
{{ parts("whole", "") }}
        var earlier = start();
        # for distance in distances(launch.workgroup ** 0.5).split()
        if (spread > {{ distance }}u) {
            let other = {{ shuffled("subgroupShuffleXor", "whole", ", %su" % distance) }};
            if ((lane & {{ distance }}u) != 0u) { earlier = {{ "other" if loop.first else "merge(other, earlier)" }}; }
            whole = merge(whole, other);
        }
        # endfor
        let shares = subgroup / share;
        earlier = {{ shuffled("subgroupShuffle", "earlier", ", shares") }};
        for (var next = shares * share; next < subgroup; next++) { earlier = merge(earlier, parts[next]); }
        before = merge(earlier, before);
        all = whole;
    }
    all = {{ shuffled("subgroupBroadcastFirst", "all") }};
    return scanned_t(before, all);
}
# else
var<workgroup> parts: array<acc_t, {{ launch.workgroup }}>;
fn scanned(mine: acc_t, {{ declared() }}) -> scanned_t {
    workgroupBarrier();
    var sum = mine;
    parts[me] = sum;
    for (var reach = 1u; reach < {{ launch.workgroup }}u; reach = reach * 2u) {
        workgroupBarrier();
        if (me >= reach) { sum = merge(parts[me - reach], sum); }
        workgroupBarrier();
        parts[me] = sum;
    }
    workgroupBarrier();
    return scanned_t(parts[max(me, 1u) - 1u], parts[{{ launch.workgroup - 1 }}]);
}
# endif
{% endmacro %}
