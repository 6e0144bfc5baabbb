// Count, mean and squared deviations of several numbers at once, in two passes, of their distances from the first, which
// are small.
{% import "reduction/trees" as trees %}
# for count in counts|default(())
fn lift{{ count }}(values: array<f32, {{ count }}>) -> acc_t {
    # for number in range(count)
    let away{{ number }} = values[{{ number }}] - values[0];
    # endfor
    let mean = {{ trees.sum_of("away#", count) }} / {{ count|f32 }};
    # for number in range(count)
    let apart{{ number }} = away{{ number }} - mean;
    # endfor
    return acc_t({{ count|f32 }}, values[0], mean, {{ trees.sum_of("apart# * apart#", count) }});
}
# endfor
