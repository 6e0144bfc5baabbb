// CONVOLUTION, Winograd: a bit for each output of a tile that loses too many digits: the norm of its patch exceeds {{ max_spread }} times the
// sum of the norms of the pixels that its window sees. Positions beyond the last have none.
// `&` evaluates both operands: SwiftShader takes minutes to compile the branches of 32 `&&`.
{% import "convolution/seen" as seen with context %}
{% set side = down.tile + window - 1 %}
fn element(at: output_at) -> output_t {
    let first_row = {{ mod(div("at[1]", tiles[1]), tiles[0]) }} * {{ down.tile }}u;
    let first_column = {{ mod("at[1]", tiles[1]) }} * {{ across.step }}u;
    var source: input_at;
    source[0] = {{ div("at[1]", tiles[0] * tiles[1]) }};
    source[1] = at[0];
    var squares = 0.0;
    # for row in down.seen
    source[2] = first_row + {{ (row - down.axis.start) % 2 ** 32 }}u;
    # set checks = ["source[2] < " ~ down.axis.spatial ~ "u"] if down.is_checked(row - down.axis.start) else []
{{ seen.read(across, 3, checks, "row" ~ row ~ "_") }}
    # for column in range(side)
    squares += {{ "row%d_" % row }}{{ seen.name(across, column) }} * {{ "row%d_" % row }}{{ seen.name(across, column) }};
    # endfor
    # for column in range(across.tile)
    let sum{{ row }}_{{ column }} = {% for tap in range(window) %}{{ " + " if tap }}row{{ row }}_{{ seen.name(across, column + tap) }}{% endfor %};
    # endfor
    # endfor
    var marks = 0u;
    # for row in range(down.tile)
    # for column in range(across.tile)
    {
        let sum = {{ max_spread }}.0 * ({% for tap in range(window) %}{{ " + " if tap }}sum{{ row + tap }}_{{ column }}{% endfor %});
        let inside = (first_row + {{ row }}u < {{ down.axis.positions }}u) & (first_column + {{ column }}u < {{ across.axis.positions }}u);
        marks |= select(0u, {{ 2 ** (row * across.tile + column) }}u, inside & !(squares <= sum * sum));
    }
    # endfor
    # endfor
    return marks;
}
