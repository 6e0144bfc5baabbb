// Stores the epilogue of two units of four adjacent sums, if they are inside the output.
{% include "schedules/gemm_place" %}
fn keep(part: u32, batch: u32, row: u32, column: u32, first: sum_t, second: sum_t) {
    if (row < {{ rows }}u && column < {{ columns // 4 }}u) {
        let at = output_place(part, batch, row, column);
        let next = output_place(part, batch, row, column + 1u);
        store_pair(at, output_bits(finish(at, first)), output_bits(finish(next, second)));
    }
}
