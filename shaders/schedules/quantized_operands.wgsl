// Rows and quantized columns of a product: units of a row, and the words, scale and zero point of a block of a column.
# for name in row_tensors
fn {{ name }}_read(batch: u32, row: u32, block: u32, unit: u32) -> {{ name }}_t {
    var at: {{ type_of(name ~ "_at") }};
    # for digit in batch_digits + row_digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    at[{{ a_inner }}] = block;
    at[{{ a_inner + 1 }}] = unit;
    return {{ name }}_load(at);
}
# endfor
# if e2m1
// Twice the floats of 4 bits that have n - 1 floats between them and 0.
fn doubled(n: {{ e2m1 }}) -> {{ e2m1 }} {
    return 4.0 * n - clamp(n, {{ e2m1 }}(-4.0), {{ e2m1 }}(4.0)) - 2.0 * clamp(n, {{ e2m1 }}(-6.0), {{ e2m1 }}(6.0));
}
# endif
# if selected
// The matrix that a batch selects; OUTSIDE if there is none, whose scales then are 0.
var<private> matrix: u32;
fn matrix_of(batch: u32) -> u32 {
    var at: {{ type_of("selection_at") }};
    # for digit in batch_digits[:selected]
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    at[{{ selected }}] = 0u;
    return selection_index(at, {{ matrices }}u);
}
# endif
# for name in tensors
fn {{ name }}_read(batch: u32, column: u32, block: u32, unit: u32) -> {{ name }}_t {
    var at: {{ type_of(name ~ "_at") }};
    # for digit in batch_digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    # if selected
    at[{{ selected - 1 }}] = select(matrix, 0u, matrix == OUTSIDE);
    # endif
    at[{{ batch_digits|length }}] = block;
    at[{{ batch_digits|length + 1 }}] = unit;
    # for digit in column_digits
    at[{{ batch_digits|length + 2 + loop.index0 }}] = {{ digit }};
    # endfor
    return {{ "select(scale_load(at), scale_t(), matrix == OUTSIDE)" if selected and name == "scale" else name ~ "_load(at)" }};
}
# endfor
