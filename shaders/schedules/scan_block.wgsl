// Start of a block: the accumulators of all elements before it, the coordinates of its units.
{% include "schedules/locate" %}
{% with output = source %}
{% include "schedules/row_unit" %}
{% endwith %}
fn begin(line: u32, block: u32) -> state_t {
    var state: state_t;
    # if starts
    var at: starts_at;
    at[{{ starts.rank - 1 }}] = block;
    # for number in range(states)
    at[0] = line * {{ states }}u + {{ number }}u;
    state[{{ number }}] = starts_load(at);
    # endfor
    # else
    # for number in range(states)
    state[{{ number }}] = start();
    # endfor
    # endif
    return state;
}
fn walked(line: input_at, index: u32) -> input_at {
    return unit_at(line, {% if decreasing %}{{ units - 1 }}u - {% endif %}index);
}
