// ATTENTION: a workgroup takes {{ tile.down * tile.rows }} rows of queries and goes through the keys, {{ tile.block }} at a time. Each of its {{ tile.across }} x {{ tile.down }}
// invocations computes {{ tile.rows }} x {{ tile.key_units }} units of four scores of a block, and then {{ tile.units }} units of four columns of the weighted sum of its values.
// (What is read from memory is uniform to WGSL only by way of workgroupUniformLoad, and barriers need uniform control flow.
// The end of a block is opaque: some compilers unroll loops of known length, for half a minute.)
{% import "schedules/attention_last" as ends with context %}
{% import "schedules/attention_macros" as attention with context %}
{% from "schedules/attention_macros" import row_parts, rows_t, vectors, width with context %}
alias sum_t = vec4<f32>;
alias rows_t = {{ rows_t }};
const LOWEST = -3.4028234e38f;
var<workgroup> tops: array<rows_t, {{ tile.workgroup * vectors }}>;
var<workgroup> weights: array<rows_t, {{ tile.down * tile.block * vectors }}>;
# if tile.dots
var<workgroup> products: array<rows_t, {{ tile.down * tile.block * tile.across }}>;
# endif
# if causal
var<workgroup> most_visible: u32;
# endif
{% include "schedules/attention_weight" %}
fn exp_rows(x: rows_t) -> rows_t {
    return rows_t({% for part in row_parts %}weight_of(x{{ part }}){{ ", " if not loop.last }}{% endfor %});
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let column_tile = {{ mod("number", across) }};
    let row_tile = {{ mod(div("number", across), down) }};
    let rest = {{ div("number", across * down) }};
    let part = {{ div("rest", batches) }};
    let batch = {{ mod("rest", batches) }};
    let lane = me % {{ tile.across }}u;
    let line = me / {{ tile.across }}u;
    let row = (row_tile * {{ tile.down }}u + line) * {{ tile.rows }}u;
    let column = column_tile * {{ tile.across * tile.units }}u + lane;
    let first_top = line * {{ tile.across * vectors }}u;
    let first_weight = line * {{ tile.block * vectors }}u;
    # if tile.dots
{{ attention.hold_queries() }}
    # else
    # for vector in range(vectors)
    let query_starts{{ vector }} = query_starts(batch, row / {{ width }}u + {{ vector }}u);
    # endfor
    # endif
    # for row in range(tile.rows)
    # if causal
    let visible{{ row }} = visible_load(visible_place(batch, min(row + {{ row }}u, {{ rows - 1 }}u)));
    # endif
    # for unit in range(tile.units)
    var total{{ row }}_{{ unit }} = sum_t();
    # endfor
    # endfor
    # for vector in range(vectors)
    var top{{ vector }} = rows_t(LOWEST);
    var mass{{ vector }} = rows_t();
    # endfor
    let first = part * {{ share }}u;
{{ ends.last_key("row_tile * %du" % (tile.down * tile.rows), tile.down * tile.rows) }}
    for (var start = first; start < last; start += {{ tile.block }}u) {
        let count = min(last - start, {{ tile.block }}u) + opaque_zero();
{{ attention.dots() if tile.dots else attention.scores() }}
{{ attention.new_tops() }}
{{ attention.weigh() }}
{{ attention.sum_values() }}
    }
{{ attention.masses() }}
{{ attention.keep_all() }}
}
