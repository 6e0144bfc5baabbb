// An operand of windows: the units of a row of the window, selected from elements that are read once for all. Units past the edge are the
// last one. Coordinates before the input wrap around to large numbers, so that one comparison finds both ends; padding is 0.
{% import "convolution/seen" as seen with context %}
alias {{ name }}_unit_t = {{ unit_t }};
{{ name_type(name ~ "_starts_t", type_of(name ~ "_at")) }}
fn {{ name }}_starts(batch: u32, unit: u32) -> {{ type_of(name ~ "_starts_t") }} {
    let own = min(unit, {{ count // width - 1 }}u);
    var at: {{ type_of(name ~ "_at") }};
    at[0] = {{ own_digits[0] }};
    at[1] = {{ batch_digits[0] }};
    # for axis in windows
    at[{{ 3 + loop.index0 }}] = ({{ own_digits[1 + loop.index0] }}) * {{ axis.stride }}u;
    # endfor
    at[{{ last }}] = ({{ own_digits[-1] }}) * {{ window.step }}u;
    return at;
}
fn {{ name }}_fetch_steps(starts: {{ type_of(name ~ "_starts_t") }}, {{ parameters }}) -> array<{{ name }}_unit_t, {{ window.axis.size }}> {
    var source = starts;
    let first_column = starts[{{ last }}];
    source[2] = k0;
    # set inside = []
    # for axis in windows
    # set here = 3 + loop.index0
    source[{{ here }}] = starts[{{ here }}] + k{{ loop.index }} * {{ axis.dilation }}u - {{ axis.start % 2 ** 32 }}u;
    # set _ = inside.append("source[" ~ here ~ "] < " ~ axis.spatial ~ "u")
    # endfor
{{ seen.read(window, last, inside, "", name) }}
    return array<{{ name }}_unit_t, {{ window.axis.size }}>(
        # for tap in range(window.axis.size)
        {{ name }}_unit_t({% for lane in range(width) %}{{ seen.name(window, window.element(lane, tap)) }}{{ ", " if not loop.last }}{% endfor %}),
        # endfor
    );
}
