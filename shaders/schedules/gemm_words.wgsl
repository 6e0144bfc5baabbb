// An operand of integers of 8 bits, or of 4, as words of four steps along the inner dimension: those of four rows or columns at once.
# if unaligned
fn {{ name }}_word(start: {{ type_of(name ~ "_at") }}, {{ parameters }}) -> u32 {
    var at = start;
    # for step in inner_steps
    at[{{ inner_at + loop.index0 }}] = {{ step }};
    # endfor
    return {{ name }}_words1(at)[0];
}
# endif
# set read = name ~ ("_word" if unaligned else "_step")
# if layout == "across"
{{ name_type(name ~ "_starts_t", "array<%s, 1>" % type_of(name ~ "_at")) }}
fn {{ name }}_starts(batch: u32, unit: u32) -> {{ type_of(name ~ "_starts_t") }} {
    return {{ type_of(name ~ "_starts_t") }}({{ name }}_start(batch, {{ "min(unit * 4u, %su)" % (count - 1) if unaligned else "min(unit, %su)" % (count // 4 - 1) }}));
}
# else
{% include "schedules/gemm_starts" %}
# endif
fn {{ name }}_fetch(starts: {{ type_of(name ~ "_starts_t") }}, word: u32) -> {{ name }}_unit_t {
    # if has_nibbles
    let half = (word & 1u) * 16u;
    # for lane in range(4)
    # set eight = "%s_step(starts[%d], %s)" % (name, lane, word_digits)
    let word{{ lane }} = {{ "(%s ^ %su)" % (eight, flip) if flip else eight }} >> half;
    # endfor
    let words = {{ name }}_unit_t(signed_nibbles(word0), signed_nibbles(word1), signed_nibbles(word2), signed_nibbles(word3));
    # elif layout == "along"
    let words = {{ name }}_unit_t({% for lane in range(4) %}{{ ", " if lane }}{{ read }}(starts[{{ lane }}], {{ "word * 4u" if unaligned else word_digits }}){% endfor %});
    # else
    # for lane in range(4)
    let step{{ lane }} = {{ "min(word * 4u + %du, %su)" % (lane, last_step) if tail and lane else "word * 4u + %du" % lane }};
    # endfor
    # if layout == "across"
    let words = transposed_bytes({{ name }}_unit_t({% for lane in range(4) %}{{ ", " if lane }}{{ read }}(starts[0], {{ step_digits[lane] }}){% endfor %}));
    # else
    let words = {{ name }}_unit_t(
        # for own in range(4)
        {% for lane in range(4) %}{{ " | " if lane }}{% if lane %}({% endif %}{{ name }}_step(starts[{{ own }}], {{ step_digits[lane] }}){{ " << %du)" % (8 * lane) if lane }}{% endfor %},
        # endfor
    );
    # endif
    # endif
    # set flipped = "(words ^ %s_unit_t(%su))" % (name, flip) if flip and not has_nibbles else "words"
    # if tail
    return {{ flipped }} & {{ name }}_unit_t(select(0xffffffffu, {{ tail }}u, word == {{ last_word }}u));
    # else
    return {{ flipped }};
    # endif
}
# if is_shifted
fn {{ name }}_zero_of(batch: u32, own: u32) -> i32 {
    # if has_zero_point
    var at: {{ type_of(name ~ "_zero_at") }};
    # for digit in zero_batch_digits
    at[{{ loop.index0 }}] = {{ digit }};
    # endfor
    # for digit in zero_own_digits
    at[{{ zero_own_at + loop.index0 }}] = {{ digit }};
    # endfor
    return i32({{ name }}_zero_load(at)){{ " - %d" % middle if middle }};
    # else
    return -{{ middle }};
    # endif
}
# endif
