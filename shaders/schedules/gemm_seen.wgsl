// An operand of windows, element by element: the start of the window of a position, and the element of a step from there.
// Coordinates before the input wrap around to large numbers, so that one comparison finds both ends; padding is 0, without a branch that
// would wait for the load. `&` has no branch either: SwiftShader takes minutes to compile those of `&&` in unrolled loops.
{% include "schedules/gemm_seen_start" %}
fn {{ name }}_step(start: {{ type_of(name ~ "_at") }}, {{ parameters }}) -> {{ name }}_t {
    var at = start;
    at[2] = k0;
    # for axis in windows
    let place{{ loop.index }} = start[{{ 3 + loop.index0 }}] + k{{ loop.index }} * {{ axis.dilation }}u;
    at[{{ 3 + loop.index0 }}] = min(place{{ loop.index }}, {{ axis.spatial - 1 }}u);
    # endfor
    let inside = {% for axis in windows %}(place{{ loop.index }} < {{ axis.spatial }}u){{ " & " if not loop.last }}{% endfor %};
    return select({{ padding }}, {{ name }}_load(at), inside);
}
