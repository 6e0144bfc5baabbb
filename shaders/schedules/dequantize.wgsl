// DEQUANTIZE, transposed: units of words of four adjacent columns become {{ in_unit }} units of four floats.
{% import "schedules/quantized_macros" as quantized with context %}
{% include "schedules/locate" %}
fn handle(number: u32) {
    var at: output_at;
    if (!locate(number, &at)) { return; }
    let unit = at[{{ inner }}];
    var place = at;
    # for lane in range(4)
    place[{{ column }}] = at[{{ column }}] * 4u + {{ lane }}u;
    let words{{ lane }} = words_load(place);
    let scale{{ lane }} = scale_load(place);
    # if zero_known is none
    let zero{{ lane }} = f32(zero_load(place)) - {{ middle }};
    # endif
    # for number in range(words_of_unit)
    let word{{ lane }}_{{ number }} = bitcast<i32>({{ quantized.signed_word("words%d" % lane, number) }});
    # endfor
    # endfor
    let scale = vec4<f32>(scale0, scale1, scale2, scale3);
    # if has_zero
    let zero = {{ zero_known if zero_known else "vec4<f32>(zero0, zero1, zero2, zero3)" }};
    # endif
    # for number in range(words_of_unit)
    # for place in range(in_word)
    at[{{ inner }}] = unit * {{ in_unit }}u + {{ number * in_word + place }}u;
    {{ buffer.store }}(output_base() + output_unit(at), output_bits((vec4<f32>({% for lane in range(4) %}{{ ", " if lane }}f32(extractBits(word{{ lane }}_{{ number }}, {{ place * bits }}u, {{ bits }}u)){% endfor %}){{ " - zero" if has_zero }}) * scale));
    # endfor
    # endfor
}
{% include "schedules/map_main" %}
