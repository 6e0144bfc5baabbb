// SCAN, tree: one workgroup takes a block, tile by tile. Each invocation holds {{ held }} adjacent units and merges them; a scan of these
// totals over the workgroup gives their start values.
{% import "schedules/scan_macros" as scan with context %}
{% import "schedules/combine_macros" as combine with context %}
{% include "schedules/scan_block" %}
{% set whole = length % (launch.workgroup * held) == 0 and units % length == 0 and units // length == blocks %}
{{ combine.scanned() }}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, {{ combine.parameters() }}) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
{{ combine.numbered() }}
    let line = {{ mod("number", lines) }};
    let block = {{ div("number", lines) }};
    var at: output_at;
    if (!locate(line, &at)) { return; }
    var before = begin(line, block);
    let end = min((block + 1u) * {{ length }}u, {{ units }}u);
    for (var tile = block * {{ length }}u; tile < end; tile += {{ launch.workgroup * held }}u) {
        let first = tile + me * {{ held }}u;
        # for number in range(held)
        # if whole
        let held{{ number }} = input_load(walked(at, first + {{ number }}u));
        # else
        var held{{ number }}: input_t;
        if (first + {{ number }}u < end) { held{{ number }} = input_load(walked(at, first + {{ number }}u)); }
        # endif
        # endfor
        var mine = start();
        # for number in range(held)
        {{ "if (first + %du < end) " % number if not whole }}{
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
        # if paired
        // Invocations side by side swap results, so that both write to the same sectors of memory at once.
        let is_odd = (me & 1u) == 1u;
        let even = tile + (me & {{ 2 ** 32 - 2 }}u) * {{ held }}u + (me & 1u);
        # for number in range(held)
        let bits{{ number }} = advanced(held{{ number }}, &state);
        # endfor
        # for number in range(0, held, 2)
        let swapped{{ number }} = subgroupShuffleXor(select(bits{{ number + 1 }}, bits{{ number }}, is_odd), 1u);
        # endfor
        # for number in range(0, held, 2)
        # set odd = number + held
        {{ "if (even + %du < end) " % number if not whole }}{ put(walked(at, even + {{ number }}u), select(bits{{ number }}, swapped{{ number }}, is_odd)); }
        {{ "if (even + %du < end) " % odd if not whole }}{ put(walked(at, even + {{ odd }}u), select(swapped{{ number }}, bits{{ number + 1 }}, is_odd)); }
        # endfor
        # else
        # for number in range(held)
        {{ "if (first + %du < end) " % number if not whole }}{ advance(walked(at, first + {{ number }}u), first + {{ number }}u, held{{ number }}, &state); }
        # endfor
        # endif
    }
}
