// Winograd's marks: a bit for each output of a tile that loses too many digits: the norm of its patch exceeds {{ max_spread }} times the sum
// of the norms of the pixels that its window sees. `square0_0` and so on are the squares of norms. Of `rows` and `columns` outputs that are
// left of the image, the tile has up to {{ tile }} each. `vector` is `vec4` for four tiles at once, one in each lane.
// `&` evaluates both operands: SwiftShader takes minutes to compile the branches of 32 `&&`.
{% macro marked(tile, max_spread, vector="") %}
    let squares = {% for row in range(tile + 2) %}{% for column in range(tile + 2) %}{{ " + " if row or column }}square{{ row }}_{{ column }}{% endfor %}{% endfor %};
    # for row in range(tile + 2)
    # for column in range(tile + 2)
    let norm{{ row }}_{{ column }} = sqrt(square{{ row }}_{{ column }});
    # endfor
    # for column in range(tile)
    let sum{{ row }}_{{ column }} = norm{{ row }}_{{ column }} + norm{{ row }}_{{ column + 1 }} + norm{{ row }}_{{ column + 2 }};
    # endfor
    # endfor
    var marks = {{ vector }}(0u);
    # for row in range(tile)
    # for column in range(tile)
    {
        let sum = {{ max_spread }}.0 * (sum{{ row }}_{{ column }} + sum{{ row + 1 }}_{{ column }} + sum{{ row + 2 }}_{{ column }});
        let inside = {{ vector }}(rows > {{ row }}u) & (columns > {{ vector }}({{ column }}u));
        marks |= select({{ vector }}(0u), {{ vector }}({{ 2 ** (row * tile + column) }}u), inside & !(squares <= sum * sum));
    }
    # endfor
    # endfor
{% endmacro %}
