// RECURRENCE: a time step of recurrent networks. An invocation takes {{ wide }} elements of the state of {{ rows }} sequences, adjacent
// invocations the next ones: it sums the products of the previous hidden state with {{ gates|length }} rows of weights each, and
// computes the next states from these sums.
// (The end of a chunk is opaque: some compilers unroll loops of known length, for half a minute.)
{% macro whole(sum) %}{{ "(%s.x + %s.y) + (%s.z + %s.w)"|format(sum, sum, sum, sum) if along else sum ~ ("[place % 4u]" if wide > 1 else "") }}{% endmacro %}
alias sum_t = weights_t;
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    let unit = {{ mod("number", tiles) }} * {{ launch.workgroup }}u + me;
    let first = {{ mod(div("number", tiles), groups) }} * {{ rows }}u;
    let direction = {{ div("number", tiles * groups) }};
    if (number >= {{ launch.total }}u || unit >= {{ units }}u) { return; }
    # for row in range(rows)
    var hidden{{ row }}_at = hidden_at(0u, direction, min(first + {{ row }}u, {{ sequences - 1 }}u), 0u);
    # endfor
    # for sum, gate in gates
    var weight{{ sum }}_at = weights_at({{ gate }}u, direction, unit, 0u);
    # for row in range(rows)
    var total{{ sum }}_{{ row }} = sum_t();
    # endfor
    # endfor
    for (var start = 0u; start < {{ steps }}u; start += {{ chunk }}u) {
        let stop = min(start + {{ chunk }}u, {{ steps }}u) + opaque_zero();
        # for sum, gate in gates
        # for row in range(rows)
        var sum{{ sum }}_{{ row }} = sum_t();
        # endfor
        # endfor
        for (var step = start; step < stop; step++) {
            # for row in range(rows)
            hidden{{ row }}_at[3] = step;
            let hidden{{ row }} = hidden_load(hidden{{ row }}_at);
            # endfor
            # for sum, gate in gates
            weight{{ sum }}_at[3] = step;
            let weight{{ sum }} = weights_load(weight{{ sum }}_at);
            # for row in range(rows)
            sum{{ sum }}_{{ row }} += weight{{ sum }} * hidden{{ row }};
            # endfor
            # endfor
        }
        # for sum, gate in gates
        # for row in range(rows)
        total{{ sum }}_{{ row }} += sum{{ sum }}_{{ row }};
        # endfor
        # endfor
    }
    // Rolled up, because compilers take seconds for as many copies of the activations.
    var sums = array<array<sum_t, {{ rows }}>, {{ gates|length }}>(
        # for sum, gate in gates
        array<sum_t, {{ rows }}>({% for row in range(rows) %}total{{ sum }}_{{ row }}{% if not loop.last %}, {% endif %}{% endfor %}),
        # endfor
    );
    for (var place = 0u; place < {{ rows * wide }}u + opaque_zero(); place++) {
        let row = place / {{ wide }}u;
        var at = output_at(0u, direction, first + row, unit * {{ wide }}u + place % {{ wide }}u);
        if (at[2] >= {{ sequences }}u) { break; }
        let states = elements(at{% for sum, gate in gates %}, {{ whole("sums[%s][row]"|format(sum)) }}{% endfor %});
        # for state in range(states)
        at[0] = {{ state }}u;
        {{ buffer.store }}(output_base() + output_unit(at), output_bits(states[{{ state }}]));
        # endfor
    }
}
