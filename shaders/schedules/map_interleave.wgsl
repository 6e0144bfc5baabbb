// INTERLEAVE: one invocation copies a unit of each of {{ copy.count }} planes from, or to, as many units of their groups.
{% include "schedules/locate" %}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    var plane = at;
    var group = at;
    # for number in range(copy.count)
    plane[{{ copy.planes }}] = {{ number }}u;
    group[{{ copy.dimension }}] = at[{{ copy.dimension }}] * {{ copy.count }}u + {{ number }}u;
    let unit{{ number }} = input_load({{ "group" if copy.splits else "plane" }});
    # endfor
    # for result in results
    plane[{{ copy.planes }}] = {{ loop.index0 }}u;
    group[{{ copy.dimension }}] = at[{{ copy.dimension }}] * {{ copy.count }}u + {{ loop.index0 }}u;
    {{ buffer.store }}(output_base() + output_unit({{ "plane" if copy.splits else "group" }}), {{ result }});
    # endfor
}
{% include "schedules/map_main" %}
