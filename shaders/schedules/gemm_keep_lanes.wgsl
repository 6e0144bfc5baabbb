// Stores the epilogue of each of four sums, if it is inside the output.
{% include "schedules/gemm_keep_one" %}
fn keep(part: u32, batch: u32, row: u32, column: u32, sums: sum_t) {
    # for part in "xyzw"
    keep_one(part, batch, row, {{ places[loop.index0] }}, sums.{{ part }});
    # endfor
}
