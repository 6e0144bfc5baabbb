// How a slot reads its blocks in a variable of wider ones that it shares.
fn load_{{ function }}(at: u32) -> {{ block }} {
    # if words == 1
    return {{ shared }}[at / {{ parts }}u][at % {{ parts }}u];
    # else
    let both = {{ shared }}[at / 2u];
    return select(both.xy, both.zw, at % 2u == 1u);
    # endif
}
