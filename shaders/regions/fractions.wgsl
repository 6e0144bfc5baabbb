// Relative position of a sample in a region, per axis: 0 at its near end, 1 at its far one.
# for axis in axes
fn fraction_{{ axis.name }}(extent: Extent, output: u32, sample: u32) -> f32 {
    let fraction = number_{{ axis.name }}(extent, output, sample) / intervals_{{ axis.name }}(extent.samples);
    return {{ "select(fraction, 0.5, intervals_%s(extent.samples) < 0.5)" % axis.name if aligned else "fraction" }};
}
# endfor
