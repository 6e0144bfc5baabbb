// NONZERO_COORDINATES: row k of the output = the coordinates of the k-th element that is not 0, in row-major order. The
// k-th element that is 0 clears the k-th row from the end: all rows are written, each once.
fn write_row(element: u32, found: bool, before: u32) {
    var place: output_at;
    place[{{ output.rank - 2 }}] = select({{ output.sizes[-2] - 1 }}u - (element - before), before, found);
    # for size, step in digits
    place[{{ output.rank - 1 }}] = {{ loop.index0 }}u;
    {{ buffer.store }}(output_base() + output_unit(place), select(0u, {{ mod(div("element", step), size) }}, found));
    # endfor
}
fn advance(at: input_at, index: u32, unit: input_t, state: ptr<function, state_t>) {
    # for lane in lanes
    write_row(index * {{ lanes|length }}u + {{ lane.number }}u, unit{{ lane.part }} != 0u, (*state)[0]);
    (*state)[0] = merge((*state)[0], lift(unit{{ lane.part }}, 0u));
    # endfor
}
