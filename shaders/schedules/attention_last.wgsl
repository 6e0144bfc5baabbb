// The keys that a workgroup's rows see: those before ``last``.
{% macro last_key(row, count) %}
    # if causal
    if (me == 0u) {
        // The last row sees most keys, of those of a tile unless it has rows of two heads, and of all.
        let last_row = min({{ row }} + {{ count - 1 }}u, {{ rows - 1 }}u);
        let lowest = select({{ rows - 1 }}u, last_row, {{ div(row, length) }} == {{ div("last_row", length) }});
        most_visible = visible_load(visible_place(batch, lowest));
    }
    # endif
    # set end = "min(first + %su, %su)" % (share, keys)
    let last = {{ "min(%s, workgroupUniformLoad(&most_visible))" % end if causal else end }};{% endmacro %}
