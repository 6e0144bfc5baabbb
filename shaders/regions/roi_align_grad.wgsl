// ROI_ALIGN_GRAD: contribution to an element of the input from the output elements of all regions: each one's gradient times the
// element's weight in it; for {{ tile }} channels, which the same regions affect, and {{ across }} elements in a row. If sums have {{ shares }} shares,
// for one of these.
{% include "reduction/exact_sum" %}
# if maximum
struct Between { low: f32, rest: f32 } // the element before a coordinate, and how far behind it that lies
fn between(coordinate: f32) -> Between {
    let low = floor(coordinate);
    return Between(low, coordinate - low);
}
fn weight_of(sample: Between, here: f32) -> f32 {
    return select(0.0, 1.0 - sample.rest, sample.low == here) + select(0.0, sample.rest, sample.low + 1.0 == here);
}
# endif
fn with_share(sum: acc_t, share: f32) -> acc_t {
    return merge(sum, acc_t(share, 0.0));
}
fn total(sum: acc_t) -> tile_s {
    return select(sum.x + sum.y, sum.x, is_not_finite(sum.x));
}
fn tile(at: output_at) -> array<tile_s, {{ tile * across }}> {
    # for channel in range(tile)
    let channel{{ channel }} = {% if channel %}min(at[1] + {{ channel }}u, {{ gradient.sizes[1] - 1 }}u){% else %}at[1]{% endif %};
    # endfor
    # for number in range(tile * across)
    var sum{{ number }} = acc_t();
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
    # for place in range(across)
    let x{{ place }} = u32_to_f32(at[3]{{ " + %du" % place if place }});
    # endfor
    # endif
    let place = at[3]{{ " / %du" % across if across > 1 }};
    for (var row_block = 0u; row_block < {{ rows.sizes[1] }}u; row_block++) {
    for (var column_block = 0u; column_block < {{ columns.sizes[1] }}u; column_block++) {
    for (var group = first; group < end; group++) {
        let row_reached = row_regions_load(row_regions_at(at[0], group, row_block, at[2]));
        for (var reached = row_reached & column_regions_load(column_regions_at(0u, group, column_block, place)); reached != 0u; reached &= reached - 1u) {
            let region = group * {{ group }}u + firstTrailingBit(reached);
            let columns = columns_load(columns_at(region, column_block, place));
            # for number in range(tile * across)
            var share{{ number }} = 0.0;
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
                        let sample = bitcast<vec2<f32>>(places_load(places_at(region, channel{{ channel }}, row, column)));
                        let gradient = gradient_load(gradient_at(region, channel{{ channel }}, row, column));
                        let above = weight_of(between(sample.x), y);
                        let beside = between(sample.y);
                        # for place in range(across)
                        let weight{{ place }} = above * weight_of(beside, x{{ place }});
                        share{{ channel * across + place }} += select(gradient * weight{{ place }}, 0.0, weight{{ place }} == 0.0);
                        # endfor
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
            # for number in range(tile * across)
            sum{{ number }} = with_share(sum{{ number }}, share{{ number }});
            # endfor
        }
    }
    }
    }
    return array<tile_s, {{ tile * across }}>({% for number in range(tile * across) %}total(sum{{ number }}){{ ", " if not loop.last }}{% endfor %});
}
