// FILL_VALUE_CONSTANT: output = value, given as the words of its bits; hidden from compilers where they would mistake them
# set hiding = " | opaque_zero()" if hidden else ""
fn apply() -> output_s {
    return output_s({{ words|join("u" ~ hiding ~ ", ") }}u{{ hiding }});
}
