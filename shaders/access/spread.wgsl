// How a slot reads and writes its blocks in several variables, each of which binds a part of them.
# if loads
fn load_{{ function }}(at: u32) -> {{ block }} {
    # for name in names[:-1]
    if (at < {{ loop.index * count }}u) { return {{ name }}[at - {{ loop.index0 * count }}u]; }
    # endfor
    return {{ names[-1] }}[at - {{ (names|length - 1) * count }}u];
}
# endif
# if stores
fn store_{{ function }}(at: u32, block: {{ block }}) {
    # for name in names[:-1]
    if (at < {{ loop.index * count }}u) { {{ name }}[at - {{ loop.index0 * count }}u] = block; return; }
    # endfor
    {{ names[-1] }}[at - {{ (names|length - 1) * count }}u] = block;
}
# endif
