// Stores one of two units of adjacent columns by the function of their range. Their partners are the other unit, or in their own.
fn keep_unit(row: u32, pair: u32, second: u32, sums: vec4<f32>) {
    if (pair >= {{ all_columns }}u) { return; }
    let column = pair + {{ div("pair", apart) }} * {{ apart }}u + second * {{ distance }}u;
    # if apart == 1
    let own = select(sums.xyyx, sums.zwwz, second == 1u);
    # else
    let own = select(sums, sums.zwxy, second == 1u);
    # endif
    # for index in range(ranges|length)
    if (column < {{ ends[index] }}u) {
        range{{ index }}_keep(row, (column{% if index %} - {{ starts[index] }}u{% endif %}) / 2u, own);
        return;
    }
    # endfor
}
