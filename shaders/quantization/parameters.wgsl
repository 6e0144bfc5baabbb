// The scales and zero points of a quantized operator, packed as float32 (exact for 8-bit numbers), so that its main
// kernel binds one buffer instead of many.
fn element(at: output_at) -> output_t {
    switch at[{{ output.rank - 1 }}] {
    # for name in names[1:]
        case {{ loop.index }}u: { return output_t({{ resolved(name ~ "_load") }}({{ resolved(name ~ "_at") }}())); }
    # endfor
        default: { return output_t({{ resolved(names[0] ~ "_load") }}({{ resolved(names[0] ~ "_at") }}())); }
    }
}
