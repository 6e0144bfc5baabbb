// What becomes of a value that a schedule holds: a region of element-wise bodies over it and the tensors beside it.
alias product_t = {{ product }};
fn finish(at: output_at, product: product_t) -> output_t {
    # for name, value in values
    let {{ name }} = {{ value }};
    # endfor
    return {{ result }};
}
