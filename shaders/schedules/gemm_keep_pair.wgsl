// Stores what becomes of two times four sums side by side, if they are inside the output.
{% include "schedules/gemm_place" %}
fn keep(part: u32, batch: u32, row: u32, column: u32, first: sum_t, second: sum_t) {
    if (row < {{ rows }}u && column < {{ columns // 4 }}u) {
        let at = output_place(part, batch, row, column);
        let next = output_place(part, batch, row, column + 1u);
        store_pair(at, output_bits(finish(at, first)), output_bits(finish(next, second)));
    }
}
