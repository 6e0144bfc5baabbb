// RECURRENCE, split: a time step of a recurrent network, for GPUs that one invocation per state cannot keep busy. {{ parts }}
// invocations divide the products of a unit of states among them, and add their sums in workgroup memory; then each
// computes single states from whole sums.
{% macro whole(sum) %}{{ "(%s.x + %s.y) + (%s.z + %s.w)"|format(sum, sum, sum, sum) if along else sum ~ ("[element % 4u]" if wide > 1 else "") }}{% endmacro %}
{% set count = gates|length * rows %}
{% macro every(name, tasks) %}{% if tasks > launch.workgroup %}for (var {{ name }} = me; {{ name }} < {{ tasks }}u; {{ name }} += {{ launch.workgroup }}u) {{ "{" }}{% else %}let {{ name }} = me;
    if ({{ name }} < {{ tasks }}u) {{ "{" }}{% endif %}{% endmacro %}
alias sum_t = weights_t;
var<workgroup> partials: array<array<array<sum_t, {{ across }}>, {{ count }}>, {{ parts }}>;
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let tile = {{ mod("number", tiles) }} * {{ across }}u;
    let first = {{ mod(div("number", tiles), groups) }} * {{ rows }}u;
    let direction = {{ div("number", tiles * groups) }};
    # if along
    let column = me / {{ parts }}u;
    let part = me % {{ parts }}u;
    # else
    let column = me % {{ across }}u;
    let part = me / {{ across }}u;
    # endif
    # for sum in range(count)
    var sum{{ sum }} = sum_t();
    # endfor
    if (tile + column < {{ units }}u) {
        # for row in range(rows)
        var hidden{{ row }}_at = hidden_at(0u, direction, min(first + {{ row }}u, {{ sequences - 1 }}u), 0u);
        # endfor
        # for sum, gate in gates
        var weight{{ sum }}_at = weights_at({{ gate }}u, direction, tile + column, 0u);
        # endfor
        for (var step = part; step < {{ steps }}u; step += {{ parts }}u) {
            # for row in range(rows)
            hidden{{ row }}_at[3] = step;
            let hidden{{ row }} = hidden_load(hidden{{ row }}_at);
            # endfor
            # for lane in range(depth)
            # for sum, gate in gates
            weight{{ sum }}_at[3] = {{ "step * %su + %su"|format(depth, lane) if depth > 1 else "step" }};
            let weight{{ sum }}_{{ lane }} = weights_load(weight{{ sum }}_at);
            # endfor
            # endfor
            # for lane in range(depth)
            # for sum, gate in gates
            # for row in range(rows)
            sum{{ sum * rows + row }} += weight{{ sum }}_{{ lane }} * hidden{{ row }}{{ "[%s]"|format(lane) if depth > 1 else "" }};
            # endfor
            # endfor
            # endfor
        }
    }
    # for sum in range(count)
    partials[part][{{ sum }}][column] = sum{{ sum }};
    # endfor
    workgroupBarrier();
    {{ every("task", across * count) }}
        let row = task / {{ across }}u;
        let unit = task % {{ across }}u;
        partials[0][row][unit] = {% for part in range(parts) %}{{ " + " if not loop.first }}partials[{{ part }}][row][unit]{% endfor %};
    }
    workgroupBarrier();
    {{ every("place", across * wide * rows) }}
        let row = place / {{ across * wide }}u;
        let element = place % {{ across * wide }}u;
        let unit = element / {{ wide }}u;
        var at = output_at(0u, direction, first + row, tile * {{ wide }}u + element);
        if (at[2] < {{ sequences }}u && tile + unit < {{ units }}u) {
            # for sum, gate in gates
            let whole{{ sum }} = partials[0][{{ sum * rows }}u + row][unit];
            # endfor
            let states = elements(at{% for sum, gate in gates %}, {{ whole("whole%s"|format(sum)) }}{% endfor %});
            # for state in range(states)
            at[0] = {{ state }}u;
            {{ buffer.store }}(output_base() + output_unit(at), output_bits(states[{{ state }}]));
            # endfor
        }
    }
}
