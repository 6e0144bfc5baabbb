// The scale of regions, of its bits. Zeros and subnormals are hidden from compilers, which take x * 0 for 0 whatever x is.
{% macro word(bits) %}
{{ bits }}u{{ " | opaque_zero()" if bits % 0x80000000 < 0x00800000 }}
{%- endmacro %}
