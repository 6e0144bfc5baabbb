// SCAN, totals: units are merged, and at the end of a block its accumulators are stored.
{% import "schedules/scan_macros" as scan with context %}
fn advance(at: input_at, index: u32, unit: input_t, state: ptr<function, state_t>) {
    # for lane in lanes
    (*state)[{{ lane.state }}] = merge((*state)[{{ lane.state }}], {{ scan.lifted(lane) }});
    # endfor
}
fn leave(line: u32, block: u32, state: state_t) {
    var at: output_at;
    at[{{ output.rank - 1 }}] = block;
    # for number in range(states)
    at[0] = line * {{ states }}u + {{ number }}u;
    {{ buffer.store }}(output_base() + output_unit(at), output_bits(state[{{ number }}]));
    # endfor
}
