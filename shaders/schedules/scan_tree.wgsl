// SCAN, tree: one workgroup takes a block, tile by tile. Each invocation holds {{ held }} neighbouring units and merges them; a scan of these
// totals over the workgroup gives what lies before them.
{% import "schedules/scan_macros" as scan with context %}
{% import "schedules/combine_macros" as combine with context %}
{% include "schedules/scan_block" %}
{{ combine.scanned() }}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, {{ combine.parameters() }}) {
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
{{ combine.numbered() }}
    let line = number % {{ lines }}u;
    let block = number / {{ lines }}u;
    var at: output_at;
    if (!locate(line, &at)) { return; }
    var before = begin(line, block);
    let end = min((block + 1u) * {{ length }}u, {{ units }}u);
    for (var tile = block * {{ length }}u; tile < end; tile += {{ launch.workgroup * held }}u) {
        let first = tile + me * {{ held }}u;
        var mine = start();
        # for number in range(held)
        var held{{ number }}: input_t;
        if (first + {{ number }}u < end) {
            held{{ number }} = input_load(walked(at, first + {{ number }}u));
            let unit = held{{ number }};
            # for lane in lanes
            mine = merge(mine, {{ scan.lifted(lane) }});
            # endfor
        }
        # endfor
        let scan = {{ combine.call("scanned", "mine") }};
        var state = before;
        if (me > 0u) { state[0] = merge(before[0], scan.before); }
        before[0] = merge(before[0], scan.all);
        # for number in range(held)
        if (first + {{ number }}u < end) { advance(walked(at, first + {{ number }}u), first + {{ number }}u, held{{ number }}, &state); }
        # endfor
    }
}
