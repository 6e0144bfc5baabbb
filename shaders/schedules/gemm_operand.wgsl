// An operand of a product: coordinates from the indices of its batch and of its row or column (or unit of them), and the
// element or unit at a step along the inner dimensions from there.
alias {{ name }}_unit_t = {{ unit_t }};
fn {{ name }}_start(batch: u32, own: u32) -> {{ type_of(name ~ "_at") }} {
    var at: {{ type_of(name ~ "_at") }};
    # for digit in batch_digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    # for digit in own_digits
    at[{{ own_at + loop.index0 }}] = {{ digit }};
    # endfor
    return at;
}
fn {{ name }}_step(start: {{ type_of(name ~ "_at") }}, {{ parameters }}) -> {{ type_of(name ~ ("_pair_t" if paired else "_t")) }} {
    var at = start;
    # for step in inner_steps
    at[{{ inner_at + loop.index0 }}] = {{ step }};
    # endfor
    return {{ name }}_load(at);
}
