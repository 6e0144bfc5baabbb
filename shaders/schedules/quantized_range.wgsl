// A range of the columns of a product: stores a unit of two, by their sums and those of their partners.
fn keep(row: u32, unit: u32, sums: product_t) {
    var at: {% if step.file %}source_at{% else %}output_at{% endif %};
    # for dimension, digit in of_rows
    at[{{ dimension }}] = {{ digit }};
    # endfor
    # for dimension, digit in of_columns
    at[{{ dimension }}] = {{ digit }};
    # endfor
    # if step.file
    var target_at: output_at;
    if (!place(at, &target_at)) { return; }
    # else
    let target_at = at;
    # endif
    {{ buffer.store }}(output_base() + output_unit(target_at), output_bits(finish(at, sums)));
}
