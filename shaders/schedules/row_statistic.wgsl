// Stores a value of a row, computed from results of its stages.
fn put(at: output_at{% for name in names %}, {{ name }}: {{ result_type }}{% endfor %}) {
    {{ buffer.store }}(output_base() + output_unit(at), output_bits({{ resolved("element") }}(at{% for name in names %}, {{ name }}{% endfor %})));
}
