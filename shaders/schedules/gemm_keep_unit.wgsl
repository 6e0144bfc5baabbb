// Stores the epilogue of four adjacent sums, if they are inside the output.
{% include "schedules/gemm_place" %}
fn keep(part: u32, batch: u32, row: u32, column: u32, sums: sum_t) {
    if (row < {{ rows }}u && column < {{ columns // 4 }}u) {
        let at = output_place(part, batch, row, column);
        {{ buffer.store }}(output_base() + output_unit(at), output_bits(finish(at, sums)));
    }
}
