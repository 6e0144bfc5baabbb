// How a slot reads and writes its blocks in several variables, each of which binds a part of them.
# macro load(first, end)
# if end - first == 1
return {{ names[first] }}[at - {{ first * count }}u];
# else
# set middle = (first + end) // 2
if (at < {{ middle * count }}u) { {{ load(first, middle) }} }
{{ load(middle, end) }}
# endif
# endmacro
# macro store(first, end)
# if end - first == 1
{{ names[first] }}[at - {{ first * count }}u] = block;
# else
# set middle = (first + end) // 2
if (at < {{ middle * count }}u) { {{ store(first, middle) }} } else { {{ store(middle, end) }} }
# endif
# endmacro
# if loads
fn load_{{ function }}(at: u32) -> {{ block }} {
    {{ load(0, names|length) }}
}
# endif
# if stores
fn store_{{ function }}(at: u32, block: {{ block }}) {
    {{ store(0, names|length) }}
}
# endif
