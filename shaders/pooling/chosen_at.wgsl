// The element of the input that a window chose: an index in the padding represents the first one on the input.
{% include "window/inside" %}
fn chosen_at(at: places_at, number: u32) -> places_at {
    var source = at;
    var rest = number;
    # for axis in axes|reverse
    # set here, index = lead + loop.revindex0, loop.revindex0
    let place{{ here }} = clamp({{ mod("rest", axis.size) }}, first_inside{{ index }}(at[{{ here }}]), last_inside{{ index }}(at[{{ here }}]));
    rest = {{ div("rest", axis.size) }};
    source[{{ here }}] = at[{{ here }}] * {{ axis.stride }}u + place{{ here }} * {{ axis.dilation }}u - {{ axis.start }}u;
    # endfor
    return source;
}
