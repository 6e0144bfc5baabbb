// DYNAMIC_QUANTIZE_LINEAR, its zero point: clamp(round({{ low }} - smallest / scale), {{ low }}, {{ high }})
fn apply(smallest: smallest_s, scale: scale_s) -> output_s {
    return output_s(quantize_f32({{ low|f32 }} - divide_f32(smallest, scale), 0, {{ low }}, {{ high }}));
}
