// QUANTIZED_LINEAR_MATRIX_MULTIPLY, QUANTIZED_LINEAR_CONVOLUTION: scales (bits of float32), zero points and biases (INT32) concatenated,
// so that the main kernel binds one buffer instead of many.
fn element(at: output_at) -> output_t {
    # for entry in entries
    # if not loop.last
    if (at[0] < {{ loop.nextitem.first }}u) {
    # endif
        var {{ entry.name }}_place: {{ resolved(entry.name ~ "_at") }};
        {{ entry.name }}_place[{{ entry.along }}] = min(at[0] - {{ entry.first }}u, {{ entry.count - 1 }}u);
        return bitcast<u32>({{ "" if entry.source.data_type.is_float else "i32" }}({{ resolved(entry.name ~ "_load") }}({{ entry.name }}_place)));
    # if not loop.last
    }
    # endif
    # endfor
}
