// MERGE: two adjacent runs of {{ records.sizes[-1] }} records become one, cut to its first {{ output.sizes[-1] }}. An invocation finds by bisection the
// number of records of each run before its share of the result, then takes them one by one.
fn record_at(line: u32, run: u32, place: u32) -> record_t {
    if (run >= {{ records.sizes[1] }}u || place >= {{ records.sizes[2] }}u) { return LAST; }
    return records_load(records_at(line, run, place));
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number >= {{ launch.total }}u) { return; }
    let first = {{ mod("number", shares) }} * {{ share }}u;
    let run = {{ mod(div("number", shares), output.sizes[1]) }};
    let line = {{ div("number", shares * output.sizes[1]) }};
    var low = max(first, {{ records.sizes[2] }}u) - {{ records.sizes[2] }}u;
    var high = min(first, {{ records.sizes[2] }}u);
    while (low < high) {
        let middle = (low + high) / 2u;
        let taken = before(record_at(line, 2u * run, middle), record_at(line, 2u * run + 1u, first - 1u - middle));
        low = select(low, middle + 1u, taken);
        high = select(middle, high, taken);
    }
    var left_place = low;
    var right_place = first - low;
    var left = record_at(line, 2u * run, left_place);
    var right = record_at(line, 2u * run + 1u, right_place);
    for (var place = first; place < min(first + {{ share }}u, {{ output.sizes[2] }}u); place++) {
        let from_right = before(right, left);
        {{ buffer.store }}(output_base() + output_unit(output_at(line, run, place)), select(left, right, from_right));
        left_place += select(1u, 0u, from_right);
        right_place += select(0u, 1u, from_right);
        let next = record_at(line, 2u * run + select(0u, 1u, from_right), select(left_place, right_place, from_right));
        left = select(next, left, from_right);
        right = select(right, next, from_right);
    }
}
