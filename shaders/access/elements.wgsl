// Several regions over one coordinate space, as the elements of an array: common subexpressions are computed once.
fn elements(at: output_at{% for name, unit in parameters %}, {{ name }}: {{ unit }}{% endfor %}) -> array<output_t, {{ results|length }}> {
    # for name, value in values
    let {{ name }} = {{ value }};
    # endfor
    return array<output_t, {{ results|length }}>({{ results|join(", ") }});
}
