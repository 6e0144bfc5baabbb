// GEMM, panels: an invocation multiplies {{ tile.rows }} rows by {{ units }} units of {{ lanes }} columns of a panel, four steps in a turn.
// Units of one invocation lie a workgroup's width apart: each load of a workgroup then covers adjacent memory, the first lane's first.
// (Two turns at once are slower: loads of CPU adapters, lane by lane, then exceed the processor's cache of decoded instructions.)
{% include "schedules/gemm_place" %}
# if lanes_stored == 1 and unit_bits < 32
{% include "schedules/exchange" %}
# endif
alias sum_t = {{ sum_t }};
fn a_read(row: u32, turn: u32) -> a_t {
    var at: a_at;
    # for digit in row_digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    at[{{ row_digits|length }}] = turn;
    return a_load(at);
}
fn b_read(panel: u32, step: u32, unit: u32) -> b_t {
    var at: b_at;
    at[0] = panel;
    at[1] = step;
    at[2] = unit;
    return b_load(at);
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) me: u32) {
    load_sizes();
    let number = group.x + group.y * {{ launch.grid[0] }}u;
    if (number >= {{ launch.total }}u) { return; }
    let panel = {{ mod("number", panels) }};
    let row = {{ div("number", panels) }} * {{ tile.rows }}u;
    # for own in range(tile.rows)
    # for unit in range(units)
    var total{{ own }}_{{ unit }} = sum_t();
    # endfor
    # endfor
    for (var turn = 0u; turn < {{ turns }}u + opaque_zero(); turn++) {
        # for own in range(tile.rows)
        let a{{ own }} = a_read(min(row + {{ own }}u, {{ rows - 1 }}u), turn);
        # endfor
        # for step in range(4)
        # for unit in range(units)
        let b{{ step }}_{{ unit }} = b_read(panel, turn * 4u + {{ step }}u, {{ unit * launch.workgroup }}u + me);
        # endfor
        # endfor
        # for own in range(tile.rows)
        # for unit in range(units)
        total{{ own }}_{{ unit }} += {% for step in range(4) %}{{ " + " if step }}a{{ own }}.{{ "xyzw"[step] }} * b{{ step }}_{{ unit }}{% endfor %};
        # endfor
        # endfor
    }
    var results = array<sum_t, {{ tile.rows * units }}>({% for own in range(tile.rows) %}{% for unit in range(units) %}{{ ", " if own or unit }}total{{ own }}_{{ unit }}{% endfor %}{% endfor %});
    for (var place = 0u; place < {{ tile.rows * units }}u + opaque_zero(); place++) {
        let own_row = row + place / {{ units }}u;
        let unit = (panel * {{ units }}u + place % {{ units }}u) * {{ launch.workgroup }}u + me;
        # if lanes_stored > 1
        if (own_row < {{ rows }}u && unit < {{ columns // lanes }}u) {
            let at = output_place(0u, 0u, own_row, unit);
            {{ buffer.store }}(output_base() + output_unit(at), output_bits(finish(at, results[place])));
        }
        # else
        for (var lane = 0u; lane < {{ lanes }}u + opaque_zero(); lane++) {
            let column = unit * {{ lanes }}u + lane;
            if (own_row < {{ rows }}u && column < {{ columns }}u) {
                let at = output_place(0u, 0u, own_row, column);
                # if unit_bits < 32
                exchange(output_unit(at), output_bits(finish(at, results[place][lane])));
                # else
                {{ buffer.store }}(output_base() + output_unit(at), output_bits(finish(at, results[place][lane])));
                # endif
            }
        }
        # endif
    }
}
