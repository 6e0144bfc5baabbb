// What the schedules of REDUCE say about the lanes of a unit: every lane has an accumulator of its own. They belong to one
// row, whose elements they number, or, across, to neighbouring rows; then units are read at each of several places. For
// partial results, {{ together }} neighbouring invocations at a time share a run of units, stepping side by side.
{% macro lifted(unit, index, lane) %}{% if of_partials %}{{ unit }}{% elif lanes == 1 %}lift({{ unit }}, {{ index }}){% elif across %}lift({{ unit }}.{{ "xyzw"[lane] }}, {{ index }}){% else %}lift({{ unit }}.{{ "xyzw"[lane] }}, {{ index }} * {{ lanes }}u + {{ lane }}u){% endif %}{% endmacro %}
{% macro walk(first, stride, end, places) %}
    # for place in places
    # set number = loop.index0
    let first_unit{{ number }} = item({{ place }}, {{ first }});
    # for lane in range(lanes)
    var acc{{ number * lanes + lane }} = {{ lifted("first_unit" ~ number, first, lane) }};
    # endfor
    # endfor
    for (var index = {{ first }} + {{ stride }}u; index < {{ end }}; index += {{ stride }}u) {
        # for place in places
        # set number = loop.index0
        let unit{{ number }} = item({{ place }}, index);
        # for lane in range(lanes)
        acc{{ number * lanes + lane }} = merge(acc{{ number * lanes + lane }}, {{ lifted("unit" ~ number, "index", lane) }});
        # endfor
        # endfor
    }
{% endmacro %}
{% macro walk_row(first, stride, end) %}
    # if in_units
    var best = rank_of_unit(item(at, {{ first }}));
    var place = {{ first }};
    for (var index = {{ first }} + {{ stride }}u; index < {{ end }}; index += {{ stride }}u) {
        let rank = rank_of_unit(item(at, index));
        let before = is_before(rank, best);
        best = select(best, rank, before);
        place = select(place, index, before);
    }
    let acc0 = in_unit(item(at, place), place, best);
    # else
{{ walk(first, stride, end, ["at"]) }}
    # for lane in range(1, lanes)
    acc0 = merge(acc0, acc{{ lane }});
    # endfor
    # endif
{% endmacro %}
{% macro share_bounds() %}
    let run = share / {{ together }}u;
    let first = run * {{ count // runs }}u + min(run, {{ count % runs }}u) + share % {{ together }}u;
    let end = (run + 1u) * {{ count // runs }}u + min(run + 1u, {{ count % runs }}u);
{% endmacro %}
