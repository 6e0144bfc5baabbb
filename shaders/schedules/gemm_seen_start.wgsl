// The start of the window of a position.
alias {{ name }}_unit_t = {{ unit_t }};
fn {{ name }}_start(batch: u32, own: u32) -> {{ type_of(name ~ "_at") }} {
    var at: {{ type_of(name ~ "_at") }};
    at[0] = {{ own_digits[0] }};
    at[1] = {{ batch_digits[0] }};
    # for axis in windows
    at[{{ 3 + loop.index0 }}] = ({{ own_digits[1 + loop.index0] }}) * {{ axis.stride }}u - {{ axis.start % 2 ** 32 }}u;
    # endfor
    return at;
}
