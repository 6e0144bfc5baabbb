// UPSAMPLE: one invocation reads a unit of {{ lanes }} elements with its neighbours, in all rows that it needs, and writes
// what lies between them: {{ columns.factor }} units in each of {{ down|length }} rows.
{% include "schedules/locate" %}
alias row_t = array<{{ "output_t" if is_raw else "vec4<f32>" }}, {{ across|length }}>;
fn row(at: units_at) -> row_t {
    let middle = {{ "" if is_raw else "vec4<f32>" }}(units_load(at));
    let first = at[{{ columns.dimension }}] * {{ lanes }}u;
    var beside = at;
    # if -1 in columns.neighbours
    beside[{{ columns.dimension }}] = max(first, 1u) - 1u;
    let left = {{ "" if is_raw else "f32" }}(source_load(beside));
    # endif
    # if 1 in columns.neighbours
    beside[{{ columns.dimension }}] = min(first + {{ lanes }}u, {{ columns.size - 1 }}u);
    let right = {{ "" if is_raw else "f32" }}(source_load(beside));
    # endif
    return row_t({{ across|join(", ") }});
}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    var taken = at;
    # if rows
    let here = at[{{ rows.dimension }}];
    # for neighbour in rows.neighbours
    taken[{{ rows.dimension }}] = {{ ["max(here, 1u) - 1u", "here", "min(here + 1u, %su)" % (rows.size - 1)][neighbour + 1] }};
    let row{{ neighbour + 1 }} = row(taken);
    # endfor
    # else
    let row1 = row(taken);
    # endif
    var made = at;
    # for unit in range(across|length)
    made[{{ columns.dimension }}] = at[{{ columns.dimension }}] * {{ across|length }}u + {{ unit }}u;
    # for value in down
    # if rows
    made[{{ rows.dimension }}] = here * {{ rows.factor }}u + {{ loop.index0 }}u;
    # endif
    buffer{{ slot }}[output_base() + output_unit(made)] = output_bits({{ value|replace("unit", unit) }});
    # endfor
    # endfor
}
@compute @workgroup_size({{ launch.workgroup }})
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let number = id.x + id.y * {{ launch.grid[0] * launch.workgroup }}u;
    if (number < {{ launch.total }}u) { handle(number); }
}
