// Epilogue of a value in registers: a region of elementwise bodies over it and other tensors.
alias product_t = {{ product }};
fn finish(at: output_at, product: product_t) -> output_t {
    # for name, value in values
    let {{ name }} = {{ value }};
    # endfor
    return {{ result }};
}
