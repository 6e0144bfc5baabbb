// How a slot reads and writes its blocks in a variable of words that it shares with slots of other blocks.
{% macro word(number) %}{{ "atomicLoad(&" if atomic }}{{ shared }}[at * {{ words }}u + {{ number }}u]{{ ")" if atomic }}{% endmacro %}
fn load_{{ function }}(at: u32) -> {{ block }} {
    # if "u64" in block
    return {{ block }}({% for low in range(0, words, 2) %}{{ ", " if low }}(u64({{ word(low + 1) }}) << 32u) | u64({{ word(low) }}){% endfor %});
    # else
    return {{ block }}({% for number in range(words) %}{{ ", " if number }}{{ word(number) }}{% endfor %});
    # endif
}
fn store_{{ function }}(at: u32, block: {{ block }}) {
    # for number in range(words)
    # if "u64" in block
    # set double = "block" ~ ("." ~ "xyzw"[number // 2] if words > 2 else "")
    # set value = "u32(%s >> 32u)" % double if number % 2 else "u32(%s & 4294967295lu)" % double
    # else
    # set value = "block" ~ ("." ~ "xyzw"[number] if words > 1 else "")
    # endif
    # if atomic
    atomicStore(&{{ shared }}[at * {{ words }}u + {{ number }}u], {{ value }});
    # else
    {{ shared }}[at * {{ words }}u + {{ number }}u] = {{ value }};
    # endif
    # endfor
}
