// ROI_ALIGN_GRAD: what reaches an element of the input from a region's output elements, a block of up to {{ block }} x {{ block }} of them:
// each one's gradient times what the element weighs in it.
# if maximum
{% include "regions/sampling" %}
{% include "regions/winning" %}
fn weight_of(place: Place, here: u32) -> f32 {
    return select(0.0, 1.0 - place.rest, place.low == here) + select(0.0, place.rest, place.high == here);
}
# endif
fn element(at: output_at) -> output_t {
    let region = at[4];
    if (batch_index(batch_at(region), {{ output.sizes[0] }}u) != at[0]) { return 0.0; }
    var rows = rows_load(rows_at(region, at[5], at[2]));
    let columns = columns_load(columns_at(region, at[6], at[3]));
    if (columns == 0u) { return 0.0; }
    # if maximum
    let height = extent_y(region);
    let width = extent_x(region);
    # endif
    var total = 0.0;
    for (; rows != 0u; rows &= rows - 1u) {
        let row = at[5] * {{ block }}u + firstTrailingBit(rows);
        var sum = 0.0;
        for (var left = columns; left != 0u; left &= left - 1u) {
            let column = at[6] * {{ block }}u + firstTrailingBit(left);
            let gradient = gradient_load(gradient_at(region, at[1], row, column));
            # if maximum
            let winner = winner_load(winner_at(region, at[1], row, column));
            if (!has_winner(winner)) { continue; }
            let weight = weight_of(winning_y(height, row, winner), at[2]) * weight_of(winning_x(width, column, winner), at[3]);
            sum += select(gradient * weight, 0.0, weight == 0.0);
            # else
            sum += gradient * column_weights_load(column_weights_at(region, column, at[3]));
            # endif
        }
        # if maximum
        total += sum;
        # else
        total += sum * row_weights_load(row_weights_at(region, row, at[2]));
        # endif
    }
    return total;
}
