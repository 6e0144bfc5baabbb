// INTERLEAVE: one invocation copies a unit of each of {{ count }} planes from, or to, as many units of their groups.
{% include "schedules/locate" %}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    var plane = at;
    var group = at;
    # for number in range(count)
    plane[{{ planes }}] = {{ number }}u;
    group[{{ dimension }}] = at[{{ dimension }}] * {{ count }}u + {{ number }}u;
    let unit{{ number }} = input_load({{ "group" if splits else "plane" }});
    # endfor
    # for result in results
    plane[{{ planes }}] = {{ loop.index0 }}u;
    group[{{ dimension }}] = at[{{ dimension }}] * {{ count }}u + {{ loop.index0 }}u;
    {{ buffer.store }}(output_base() + output_unit({{ "plane" if splits else "group" }}), {{ result }});
    # endfor
}
{% include "schedules/map_main" %}
