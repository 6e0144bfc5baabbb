// How a slot reads its blocks in a variable of wider ones that it shares.
fn load_{{ function }}(at: u32) -> {{ block }} {
    # if doubled and words == 1
    let double = {{ shared }}[at / {{ parts }}u]{% if components > 1 %}[at / 2u % {{ components }}u]{% endif %};
    return u32((double >> (32u * (at % 2u))) & 4294967295lu);
    # elif parts == components
    return {{ shared }}[at / {{ parts }}u][at % {{ parts }}u];
    # else
    let both = {{ shared }}[at / 2u];
    return select(both.xy, both.zw, at % 2u == 1u);
    # endif
}
