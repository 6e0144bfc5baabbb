// How a slot reads and writes its blocks of words in a variable of 64-bit numbers.
{% set halves = [".x", ".y"] if block == "vec4<u32>" else [""] %}
# if loads
fn load_{{ function }}(at: u32) -> {{ block }} {
    let doubles = {{ shared }}[at];
    return {{ block }}({% for half in halves %}{{ ", " if not loop.first }}u32(doubles{{ half }} & 4294967295lu), u32(doubles{{ half }} >> 32u){% endfor %});
}
# endif
# if stores
fn store_{{ function }}(at: u32, block: {{ block }}) {
    # if halves|length == 2
    {{ shared }}[at] = vec2<u64>((u64(block.y) << 32u) | u64(block.x), (u64(block.w) << 32u) | u64(block.z));
    # else
    {{ shared }}[at] = (u64(block.y) << 32u) | u64(block.x);
    # endif
}
# endif
