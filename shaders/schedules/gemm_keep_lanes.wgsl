// Stores what becomes of each of four sums side by side, if it is inside the output.
{% include "schedules/gemm_place" %}
{% if unit_bits < 32 %}
{% include "schedules/exchange" %}
{% endif %}
fn keep_one(part: u32, batch: u32, row: u32, column: u32, product: product_t) {
    if (row < {{ rows }}u && column < {{ columns }}u) {
        let at = output_place(part, batch, row, column);
        # if unit_bits < 32
        exchange(output_unit(at), output_bits(finish(at, product)));
        # else
        buffer{{ slot }}[output_base() + output_unit(at)] = output_bits(finish(at, product));
        # endif
    }
}
fn keep(part: u32, batch: u32, row: u32, column: u32, sums: sum_t) {
    # for part in "xyzw"
    keep_one(part, batch, row, column * 4u + {{ loop.index0 }}u, sums.{{ part }});
    # endfor
}
