// Macros of REDUCE for the lanes of a unit: every lane has its own accumulator. They belong to one
// row, whose elements they index, or, across, to adjacent rows; then units are read at each of several places. For
// partial results, {{ together }} adjacent invocations at a time share a run of units, interleaved.
{% macro lifted(unit, index, lane) %}{% if of_partials %}{{ unit }}{% elif lanes == 1 %}lift({{ unit }}, {{ index }}){% elif across is not none %}lift({{ unit }}.{{ "xyzw"[lane] }}, {{ index }}){% else %}lift({{ unit }}.{{ "xyzw"[lane] }}, {{ index }} * {{ lanes }}u + {{ lane }}u){% endif %}{% endmacro %}
{% macro merged(number, unit, index) %}
        # for lane in range(lanes)
        acc{{ number * lanes + lane }} = merge(acc{{ number * lanes + lane }}, {{ lifted(unit, index, lane) }});
        # endfor
{% endmacro %}
{% macro walk(first, stride, end, places) %}
    # for place in places
    # set number = loop.index0
    let first_unit{{ number }} = item({{ place }}, {{ first }});
    # for lane in range(lanes)
    var acc{{ number * lanes + lane }} = {{ lifted("first_unit" ~ number, first, lane) }};
    # endfor
    # endfor
    var index = {{ first }} + {{ stride }}u;
    # if ahead|default(1) > 1
    for (; index + {{ (ahead - 1) * stride }}u < {{ end }}; index += {{ ahead * stride }}u) {
        # for step in range(ahead)
        # for place in places
        let unit{{ loop.index0 }}_{{ step }} = item({{ place }}, index + {{ step * stride }}u);
        # endfor
        # endfor
        # for step in range(ahead)
        # for place in places
{{ merged(loop.index0, "unit%d_%d" % (loop.index0, step), "(index + %du)" % (step * stride)) }}
        # endfor
        # endfor
    }
    # endif
    for (; index < {{ end }}; index += {{ stride }}u) {
        # for place in places
        let unit{{ loop.index0 }} = item({{ place }}, index);
{{ merged(loop.index0, "unit%d" % loop.index0, "index") }}
        # endfor
    }
{% endmacro %}
{% macro numbers() %}{% for number in range(group) %}{% for lane in range(lanes) %}{{ ", " if number or lane }}unit{{ number }}{{ "." ~ "xyzw"[lane] if lanes > 1 }}{% endfor %}{% endfor %}{% endmacro %}
{% macro walk_groups(first, stride, end) %}
    var sum = run_t();
    var index = {{ first }};
    for (; index + {{ (group - 1) * stride }}u < {{ end }}; index += {{ group * stride }}u) {
        # for number in range(group)
        let unit{{ number }} = item(at, index + {{ number * stride }}u);
        # endfor
        sum = absorb(sum, array<input_s, {{ group * lanes }}>({{ numbers() }}));
    }
    var acc0 = close(sum);
    for (; index < {{ end }}; index += {{ stride }}u) {
        let unit = item(at, index);
        # for lane in range(lanes)
        acc0 = merge(acc0, {{ lifted("unit", "index", lane) }});
        # endfor
    }
{% endmacro %}
{% macro numbered(first, number, end, is_held) %}{{ "min(" if is_held }}{{ first }}{{ " + " ~ number if number != "0u" }}{{ ", %s - 1u)" % end if is_held }}{% endmacro %}
{% macro walk_compared(first, stride, end) %}
    # set last = compared > 1 and count % compared
    var best = rank_of(seen(item(at, {{ first }})));
    var place = {{ first }};
    for (var index = {{ first }}; index < {{ end }}; index += {{ compared * stride }}u) {
        # for unit in range(compared)
        let seen{{ unit }} = seen(item(at, {{ numbered("index", unit ~ "u", end, last) }}));
        # endfor
        let rank = rank_of({{ "joined(" * (compared - 1) }}seen0{% for unit in range(1, compared) %}, seen{{ unit }}){% endfor %});
        let before = is_before(rank, best);
        best = select(best, rank, before);
        place = select(place, index, before);
    }
    # if compared > 1
    let start = place;
    for (var turn = 0u; turn < {{ compared }}u; turn++) {
        let index = {{ numbered("start", "turn" if decreasing|default(false) else "(%du - turn)" % (compared - 1), end, last) }};
        place = select(place, index, rank_of(seen(item(at, index))) == best);
    }
    # endif
    let acc0 = in_unit(item(at, place), place, best);
{% endmacro %}
{% macro walk_row(first, stride, end) %}
    # if group
{{ walk_groups(first, stride, end) }}
    # elif compared
{{ walk_compared(first, stride, end) }}
    # else
{{ walk(first, stride, end, ["at"]) }}
    # for lane in range(1, lanes)
    acc0 = merge(acc0, acc{{ lane }});
    # endfor
    # endif
{% endmacro %}
{% macro share_bounds() %}
    let run = {{ div("share", together) }};
    let first = run * {{ count // runs }}u + min(run, {{ count % runs }}u) + {{ mod("share", together) }};
    let end = (run + 1u) * {{ count // runs }}u + min(run + 1u, {{ count % runs }}u);
{% endmacro %}
{% macro finished(acc, place) %}{% if epilogue %}epilogue_element({{ place }}, finish({{ acc }})){% else %}finish({{ acc }}){% endif %}{% endmacro %}
