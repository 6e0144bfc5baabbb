// Per axis: input coordinate of an output element, (index - output offset) / scale - input offset, each step rounded to
// f32 on all adapters.
# for axis in axes
fn coordinate{{ loop.index0 }}(number: u32) -> f32 {
    let moved = {{ "f32" if axis.count <= 2 ** 24 else "u32_to_f32" }}(number) - bitcast<f32>({{ axis.output_offset_bits }}u);
    # if axis.inverse_bits
    let scaled = moved * bitcast<f32>({{ axis.inverse_bits }}u); // a power of two: exact
    # else
    let scaled = divide_f32(moved, bitcast<f32>({{ axis.scale_bits }}u));
    # endif
    return scaled - bitcast<f32>({{ axis.input_offset_bits }}u);
}
# endfor
