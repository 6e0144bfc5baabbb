// Stores the epilogue of a sum, if it is inside the output.
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
        {{ buffer.store }}(output_base() + output_unit(at), output_bits(finish(at, product)));
        # endif
    }
}
