// ROI_POOLING: the row-major index in the whole input of the largest element of a region's bin; all ones if the bin
// is empty.
// Of equal elements the first; NaN only if there is nothing else. A share of the bin at a time: `previous` is the result of the
// earlier shares.
{% import "regions/scale" as scale %}
struct Span { first: i32, count: u32 } // of a region along an axis: elements of the input
fn corner_of(number: f32) -> i32 {
    return clamp(f32_to_i32(round_half_away_f32(number * bitcast<f32>({{ scale.word(scale_bits) }}))), -0x3fffffff, 0x3fffffff);
}
fn span(region: u32, entry: u32) -> Span {
    let near = corner_of(roi_load(roi_at(region, entry)));
    let far = corner_of(roi_load(roi_at(region, entry + 2u)));
    return Span(near, u32(max(far - near, 0)) + 1u);
}
// (count * number + up) / bins: how much of a span lies before a bin, without a product that overflows.
fn before(count: u32, number: u32, bins: u32, up: u32) -> i32 {
    return i32(count / bins * number + (count % bins * number + up) / bins);
}
fn bin(extent: Span, number: u32, bins: u32, size: i32) -> vec2<i32> {
    let first = extent.first + before(extent.count, number, bins, 0u);
    let end = extent.first + before(extent.count, number + 1u, bins, bins - 1u);
    return clamp(vec2<i32>(first, end), vec2<i32>(0), vec2<i32>(size));
}
fn element(at: output_at) -> output_t {
    # if share
    var found = previous_load(at);
    # else
    var found = 0xffffffffu;
    # endif
    let batch = roi_load(roi_at(at[0], 0u));
    if (!(less_f32(-1.0, batch) && less_f32(batch, {{ input.sizes[0]|f32 }}))) { return found; }
    let rows = bin(span(at[0], 2u), at[2], {{ output.sizes[2] }}u, {{ input.sizes[2]|i32 }});
    let columns = bin(span(at[0], 1u), at[3], {{ output.sizes[3] }}u, {{ input.sizes[3]|i32 }});
    var source = input_at(f32_to_u32(batch), at[1], 0u, 0u);
    let plane = (source[0] * {{ input.sizes[1] }}u + source[1]) * {{ input.sizes[2] * input.sizes[3] }}u;
    var best = 0xffffffffu; // the rank of NaN
    # if share
    if (found != 0xffffffffu) {
        source[2] = {{ div("(found - plane)", input.sizes[3]) }};
        source[3] = {{ mod("(found - plane)", input.sizes[3]) }};
        best = descending_f32(input_load(source));
    }
    # endif
    let first_row = rows.x + {{ (share // shares.across * shares.rows)|i32 }};
    let first_column = columns.x + {{ (share % shares.across * shares.columns)|i32 }};
    for (var row = first_row; row < min(rows.y, first_row + {{ shares.rows|i32 }}); row++) {
        for (var column = first_column; column < min(columns.y, first_column + {{ shares.columns|i32 }}); column++) {
            source[2] = u32(row);
            source[3] = u32(column);
            let rank = descending_f32(input_load(source));
            if (rank < best || found == 0xffffffffu) {
                best = rank;
                found = plane + source[2] * {{ input.sizes[3] }}u + source[3];
            }
        }
    }
    return found;
}
