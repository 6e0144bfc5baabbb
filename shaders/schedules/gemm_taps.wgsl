// An operand of windows, a tap of the windows at a time: the place of a tap of the window of a position, whether it is on the
// input, and the elements of channels there. Coordinates before the input wrap around to large numbers.
{% include "schedules/gemm_seen_start" %}
fn {{ name }}_tap(start: {{ type_of(name ~ "_at") }}{% for _ in windows %}, k{{ loop.index }}: u32{% endfor %}) -> {{ type_of(name ~ "_at") }} {
    var at = start;
    # for axis in windows
    at[{{ 3 + loop.index0 }}] += k{{ loop.index }} * {{ axis.dilation }}u;
    # endfor
    return at;
}
fn {{ name }}_inside(tap: {{ type_of(name ~ "_at") }}) -> bool {
    return {% for axis in windows %}(tap[{{ 3 + loop.index0 }}] < {{ axis.spatial }}u){{ " & " if not loop.last }}{% endfor %};
}
fn {{ name }}_channel(tap: {{ type_of(name ~ "_at") }}, channel: u32) -> {{ name }}_t {
    var at = tap;
    at[2] = channel{{ " / 4u" if in_units }};
    # for axis in windows
    at[{{ 3 + loop.index0 }}] = min(at[{{ 3 + loop.index0 }}], {{ axis.spatial - 1 }}u);
    # endfor
    return {{ name }}_load(at);
}
