// ROI_ALIGN_GRAD: what reaches an element of the input from the output elements of all regions, each one's gradient times what the
// element weighs in it; for {{ tile }} channels, which the same regions reach. Where sums are in {{ shares }} shares, of one of these.
{% include "reduction/exact_sum" %}
# if maximum
fn weight_of(coordinate: f32, here: f32) -> f32 {
    let low = floor(coordinate);
    let rest = coordinate - low;
    return select(0.0, 1.0 - rest, low == here) + select(0.0, rest, low + 1.0 == here);
}
# endif
fn with_share(sum: acc_t, share: f32) -> acc_t {
    return merge(sum, acc_t(share, 0.0));
}
fn total(sum: acc_t) -> tile_s {
    return select(sum.x + sum.y, sum.x, is_not_finite(sum.x));
}
fn tile(at: output_at) -> array<tile_s, {{ tile }}> {
    # for channel in range(tile)
    let channel{{ channel }} = {% if channel %}min(at[1] + {{ channel }}u, {{ gradient.sizes[1] - 1 }}u){% else %}at[1]{% endif %};
    var sum{{ channel }} = acc_t();
    # endfor
    # if shares > 1
    let first = at[4] * {{ share }}u;
    let end = min(first + {{ share }}u, {{ row_regions.sizes[1] }}u);
    # else
    let first = 0u;
    let end = {{ row_regions.sizes[1] }}u;
    # endif
    # if maximum
    let y = u32_to_f32(at[2]);
    let x = u32_to_f32(at[3]);
    # endif
    for (var row_block = 0u; row_block < {{ rows.sizes[1] }}u; row_block++) {
    for (var column_block = 0u; column_block < {{ columns.sizes[1] }}u; column_block++) {
    for (var group = first; group < end; group++) {
        let row_reached = row_regions_load(row_regions_at(at[0], group, row_block, at[2]));
        for (var reached = row_reached & column_regions_load(column_regions_at(0u, group, column_block, at[3])); reached != 0u; reached &= reached - 1u) {
            let region = group * {{ group }}u + firstTrailingBit(reached);
            let columns = columns_load(columns_at(region, column_block, at[3]));
            # for channel in range(tile)
            var share{{ channel }} = 0.0;
            # endfor
            for (var rows = rows_load(rows_at(region, row_block, at[2])); rows != 0u; rows &= rows - 1u) {
                let row = row_block * {{ block }}u + firstTrailingBit(rows);
                # if not maximum
                # for channel in range(tile)
                var along{{ channel }} = 0.0;
                # endfor
                # endif
                for (var left = columns; left != 0u; left &= left - 1u) {
                    let column = column_block * {{ block }}u + firstTrailingBit(left);
                    # if maximum
                    # for channel in range(tile)
                    {
                        let place = bitcast<vec2<f32>>(places_load(places_at(region, channel{{ channel }}, row, column)));
                        let weight = weight_of(place.x, y) * weight_of(place.y, x);
                        let gradient = gradient_load(gradient_at(region, channel{{ channel }}, row, column));
                        share{{ channel }} += select(gradient * weight, 0.0, weight == 0.0);
                    }
                    # endfor
                    # else
                    let weight = column_weights_load(column_weights_at(region, column, at[3]));
                    # for channel in range(tile)
                    along{{ channel }} += gradient_load(gradient_at(region, channel{{ channel }}, row, column)) * weight;
                    # endfor
                    # endif
                }
                # if not maximum
                let weight = row_weights_load(row_weights_at(region, row, at[2]));
                # for channel in range(tile)
                share{{ channel }} += along{{ channel }} * weight;
                # endfor
                # endif
            }
            # for channel in range(tile)
            sum{{ channel }} = with_share(sum{{ channel }}, share{{ channel }});
            # endfor
        }
    }
    }
    }
    return array<tile_s, {{ tile }}>({% for channel in range(tile) %}total(sum{{ channel }}){{ ", " if not loop.last }}{% endfor %});
}
