// Common macros of the schedules of products with quantized columns.
{% macro word(name, number) %}{{ name }}{{ "." ~ "xyzw"[number] if words_of_unit > 1 else "" }}{% endmacro %}
{% macro signed_word(name, number) %}{{ "(" ~ word(name, number) ~ " ^ " ~ flip ~ "u)" if flip else word(name, number) }}{% endmacro %}
{% macro element(name, place) %}{% if a_lanes == 1 %}{{ name }}{{ place }}{% else %}{{ name }}{{ place // 4 }}.{{ "xyzw"[place % 4] }}{% endif %}{% endmacro %}
{% macro result(name, column, apart=columns) %}{% if parts == 1 %}{{ name }}{{ column }}{% else %}vec{{ parts }}<f32>({% for part in range(parts) %}{{ ", " if part }}{{ name }}{{ part * apart + column }}{% endfor %}){% endif %}{% endmacro %}
{% macro all(name) %}vec4<f32>({% for part in range(4) %}{{ ", " if part }}{{ name }}{{ part }}{% endfor %}){% endmacro %}
{% macro zero_point(name, column) %}
        # if zero_known is not none
        {{ "let %s = %s;" % (name, zero_known) if zero_known }}
        # else
        let {{ name }} = f32(zero_read(batch, {{ column }}, block, 0u)) - {{ middle }};
        # endif
{% endmacro %}
// The integers of a word of columns as words of four bytes: those in even and odd places of 4 bits (split), else adjacent ones, less their middle.
{% macro bytes(name, word, split) %}
            # set bits_of_word = "(%s ^ %su)" % (word, byte_flip) if byte_flip else word
            # if bits == 8
            let {{ name }}0 = {{ bits_of_word }};
            # elif split
            let {{ name }}0 = {{ bits_of_word }} & 0xf0f0f0fu;
            let {{ name }}1 = ({{ bits_of_word }} >> 4u) & 0xf0f0f0fu;
            # else
            let {{ name }}0 = signed_nibbles({{ bits_of_word }});
            let {{ name }}1 = signed_nibbles({{ bits_of_word }} >> 16u);
            # endif
{% endmacro %}
