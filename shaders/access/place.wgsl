// Address of a unit in its buffer: the base offset comes with each dispatch, sizes and strides have names.
fn {{ name }}_base() -> u32 {
    return {{ buffer.base }}(){% if shift %} >> {{ shift }}u{% endif %};
}
fn {{ name }}_unit(at: {{ type_of(name ~ "_at") }}) -> u32 {
    return {{ offset }}u{% for dimension, stride, is_many in terms %} + at[{{ dimension }}]{% if is_many %} * {{ stride }}u{% endif %}{% endfor %};
}
