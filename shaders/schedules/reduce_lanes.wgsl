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
{% macro numbered(first, number, end, is_held) %}{{ "min(" if is_held }}{{ first }}{{ " + " ~ number if number != "0u" }}{{ ", %s - 1u)" % end if is_held }}{% endmacro %}
{% macro walk_row(first, stride, end) %}
    # if at_once
    # set last = at_once > 1 and count % at_once
    var best = rank_of(seen(item(at, {{ first }})));
    var place = {{ first }};
    for (var index = {{ first }}; index < {{ end }}; index += {{ at_once * stride }}u) {
        # for unit in range(at_once)
        let seen{{ unit }} = seen(item(at, {{ numbered("index", unit ~ "u", end, last) }}));
        # endfor
        let rank = rank_of({{ "joined(" * (at_once - 1) }}seen0{% for unit in range(1, at_once) %}, seen{{ unit }}){% endfor %});
        let before = is_before(rank, best);
        best = select(best, rank, before);
        place = select(place, index, before);
    }
    # if at_once > 1
    let start = place;
    for (var turn = 0u; turn < {{ at_once }}u; turn++) {
        let index = {{ numbered("start", "turn" if decreasing else "(%du - turn)" % (at_once - 1), end, last) }};
        place = select(place, index, rank_of(seen(item(at, index))) == best);
    }
    # endif
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
