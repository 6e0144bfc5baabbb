// UPSAMPLE: one invocation reads a unit of {{ lanes }} elements with the adjacent elements, in all rows that it needs, and writes
// the output between them: {{ "one of %d units" % across|length if split else "%d units" % across|length }} in each of {{ down|length }} rows.
{% include "schedules/locate" %}
# set unit_t = "output_t" if is_raw else "vec4<f32>"
# if split
alias row_t = {{ unit_t }};
fn row(at: units_at, part: u32) -> row_t {
# else
{{ name_type("row_t", "array<%s, %d>" % (unit_t, across|length)) }}
fn row(at: units_at) -> row_t {
# endif
    let middle = {{ "" if is_raw else "vec4<f32>" }}(units_load(at));
    let first = at[{{ columns.dimension }}] * {{ lanes }}u;
    var beside = at;
    # if -1 in columns.neighbors
    beside[{{ columns.dimension }}] = max(first, 1u) - 1u;
    let left = {{ "" if is_raw else "f32" }}(source_load(beside));
    # endif
    # if 1 in columns.neighbors
    beside[{{ columns.dimension }}] = min(first + {{ lanes }}u, {{ columns.size - 1 }}u);
    let right = {{ "" if is_raw else "f32" }}(source_load(beside));
    # endif
    # if split
    var chosen = {{ across[0] }};
    # for expression in across[1:]
    chosen = select(chosen, {{ expression }}, part == {{ loop.index }}u);
    # endfor
    return chosen;
    # else
    return row_t({{ across|join(", ") }});
    # endif
}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    var taken = at;
    # if split
    taken[{{ columns.dimension }}] = at[{{ columns.dimension }}] / {{ across|length }}u;
    let part = at[{{ columns.dimension }}] % {{ across|length }}u;
    # endif
    # set arguments = "taken, part" if split else "taken"
    # if rows
    let here = at[{{ rows.dimension }}];
    # for neighbor in rows.neighbors
    taken[{{ rows.dimension }}] = {{ "max(here, 1u) - 1u" if neighbor < 0 else "min(here + 1u, %su)" % (rows.size - 1) if neighbor else "here" }};
    let row{{ neighbor + 1 }} = row({{ arguments }});
    # endfor
    # else
    let row1 = row({{ arguments }});
    # endif
    var made = at;
    # for unit in range(1 if split else across|length)
    # if not split
    made[{{ columns.dimension }}] = at[{{ columns.dimension }}] * {{ across|length }}u + {{ unit }}u;
    # endif
    # for value in down
    # if rows
    made[{{ rows.dimension }}] = here * {{ rows.factor }}u + {{ loop.index0 }}u;
    # endif
    {{ buffer.store }}(output_base() + output_unit(made), output_bits({{ value|replace("[unit]", "" if split else "[%d]" % unit) }}));
    # endfor
    # endfor
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    load_sizes();
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number < {{ launch.total }}u) { handle(number); }
}
