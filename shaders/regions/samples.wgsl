// Visits the samples of an output element that lie on the input, row by row: those of one share. There are y_extent, x_extent,
// y_range, x_range (all that lie on the input), and for each sample y_sample, x_sample, y_place, x_place.
{% macro each_sample(region, row, column, share) %}
    let y_extent = extent_y({{ region }});
    let x_extent = extent_x({{ region }});
    let y_range = samples_y(y_extent, {{ row }}, {{ axes[0].lowest|f32 }}, {{ axes[0].highest|f32 }});
    let x_range = samples_x(x_extent, {{ column }}, {{ axes[1].lowest|f32 }}, {{ axes[1].highest|f32 }});
    let y_first = y_range.x + {{ share }} / {{ shares.across }}u * {{ shares.rows }}u;
    let x_first = x_range.x + {{ share }} % {{ shares.across }}u * {{ shares.columns }}u;
    for (var y_sample = y_first; y_sample < min(y_range.y, y_first + {{ shares.rows }}u); y_sample++) {
        let y_place = place_y(coordinate_y(y_extent, {{ row }}, y_sample));
        for (var x_sample = x_first; x_sample < min(x_range.y, x_first + {{ shares.columns }}u); x_sample++) {
            let x_place = place_x(coordinate_x(x_extent, {{ column }}, x_sample));
{{ caller() }}
        }
    }
{% endmacro %}
