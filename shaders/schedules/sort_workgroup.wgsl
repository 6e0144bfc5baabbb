// SORT, workgroup: a workgroup sorts a tile of {{ width }} records by a bitonic network and keeps the first {{ kept }}.
{% include "schedules/locate" %}
var<workgroup> tile: array<record_t, {{ width }}>;
fn put_in_order(low: u32, high: u32, ascending: bool) {
    let a = tile[low];
    let b = tile[high];
    if (before(b, a) == ascending) {
        tile[low] = b;
        tile[high] = a;
    }
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group_id: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
    let number = group_id.x + group_id.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    var at: output_at;
    if (!locate(number, &at)) { return; }
    let start = at[{{ output.rank - 2 }}] * {{ width }}u;
    for (var place = me; place < {{ width }}u; place += {{ launch.workgroup }}u) { tile[place] = item(at, start + place); }
    workgroupBarrier();
    for (var size = 2u; size <= {{ width }}u; size *= 2u) {
        for (var distance = size / 2u; distance > 0u; distance /= 2u) {
            for (var pair = me; pair < {{ width // 2 }}u; pair += {{ launch.workgroup }}u) {
                let low = 2u * pair - (pair & (distance - 1u));
                put_in_order(low, low + distance, (low & size) == 0u);
            }
            workgroupBarrier();
        }
    }
    let target_place = output_base() + output_unit(at);
    for (var place = me; place < {{ kept }}u; place += {{ launch.workgroup }}u) { {{ buffer.store }}(target_place + place, tile[place]); }
}
