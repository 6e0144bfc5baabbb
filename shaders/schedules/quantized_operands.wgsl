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
# for name in tensors
fn {{ name }}_read(batch: u32, column: u32, block: u32, unit: u32) -> {{ name }}_t {
    var at: {{ type_of(name ~ "_at") }};
    # for digit in batch_digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    at[{{ batch_digits|length }}] = block;
    at[{{ batch_digits|length + 1 }}] = unit;
    # for digit in column_digits
    at[{{ batch_digits|length + 2 + loop.index0 }}] = {{ digit }};
    # endfor
    return {{ name }}_load(at);
}
# endfor
