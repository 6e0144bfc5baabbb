// How a slot reads and writes its blocks in a variable of words that it shares with slots of other blocks.
fn load_{{ function }}(at: u32) -> {{ block }} {
    return {{ block }}({% for word in range(words) %}{{ ", " if word }}{{ "atomicLoad(&" if atomic }}{{ shared }}[at * {{ words }}u + {{ word }}u]{{ ")" if atomic }}{% endfor %});
}
fn store_{{ function }}(at: u32, block: {{ block }}) {
    # for word in range(words)
    # set value = "block" ~ ("." ~ "xyzw"[word] if words > 1 else "")
    # if atomic
    atomicStore(&{{ shared }}[at * {{ words }}u + {{ word }}u], {{ value }});
    # else
    {{ shared }}[at * {{ words }}u + {{ word }}u] = {{ value }};
    # endif
    # endfor
}
