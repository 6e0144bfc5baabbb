// SCAN, results: units are merged, and the result of each lane is stored at the same position of the output.
{% import "schedules/scan_macros" as scan with context %}
{% if unit_bits < 32 %}
{% include "schedules/exchange" %}
{% endif %}
alias bits_t = {{ block }};
fn advanced(unit: input_t, state: ptr<function, state_t>) -> bits_t {
    # for lane in lanes
    # if exclusive
    let result{{ lane.number }} = {{ scan.finished(lane) }};
    # endif
    (*state)[{{ lane.state }}] = merge((*state)[{{ lane.state }}], {{ scan.lifted(lane) }});
    # if not exclusive
    let result{{ lane.number }} = {{ scan.finished(lane) }};
    # endif
    # endfor
    return output_bits(output_t({% for number in range(lanes|length) %}result{{ number }}{{ ", " if not loop.last }}{% endfor %}));
}
fn put(at: input_at, bits: bits_t) {
    # if unit_bits < 32
    exchange(output_unit(at), bits);
    # else
    {{ buffer.store }}(output_base() + output_unit(at), bits);
    # endif
}
fn advance(at: input_at, index: u32, unit: input_t, state: ptr<function, state_t>) {
    put(at, advanced(unit, state));
}
