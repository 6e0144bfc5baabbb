// A region of element-wise bodies over one coordinate space: straight-line values, each computed once.
fn element(at: output_at{% for name, unit in parameters %}, {{ name }}: {{ unit }}{% endfor %}) -> output_t {
    # for name, value in values
    let {{ name }} = {{ value }};
    # endfor
    return {{ result }};
}
