// Address of a unit in its buffer: the base offset comes with each dispatch, sizes and strides are constants.
fn {{ name }}_base() -> u32 {
    return params.{{ "bases" if slot < 4 else "more_bases" }}.{{ "xyzw"[slot % 4] }}{% if shift %} >> {{ shift }}u{% endif %};
}
fn {{ name }}_unit(at: {{ name }}_at) -> u32 {
    return {{ offset }}u{% for dimension, stride in terms %} + at[{{ dimension }}]{% if stride != 1 %} * {{ stride }}u{% endif %}{% endfor %};
}
