// Positions of a region's samples, per axis: ROI_ALIGN1's coordinates, each step rounded to f32 on all adapters.
// Both ends of a region in elements of the input, from one sample to the next, samples per output element.
{% import "regions/scale" as scale %}
struct Extent { near: f32, far: f32, step: f32, samples: u32 }
struct Place { low: u32, high: u32, rest: f32 } // adjacent elements, and the weight of the higher one
fn is_between(low: f32, coordinate: f32, high: f32) -> bool {
    return less_equal_f32(low, coordinate) && less_equal_f32(coordinate, high);
}
# for axis in axes
fn intervals_{{ axis.name }}(samples: u32) -> f32 {
    return {{ axis.outputs|f32 }} * u32_to_f32(samples){{ " - 1.0" if aligned }};
}
fn extent_{{ axis.name }}(region: u32) -> Extent {
    let near = opaque(roi_load(roi_at(region, {{ axis.entry }}u)) * bitcast<f32>({{ scale.word(axis.scale_bits) }}));
    let far = opaque(roi_load(roi_at(region, {{ axis.entry + 2 }}u)) * bitcast<f32>({{ scale.word(axis.scale_bits) }}));
    let size = far - near;
    if (is_not_finite(size)) { return Extent(nan_f32(), nan_f32(), 0.0, {{ fewest }}u); }
    let samples = clamp(f32_to_u32(ceil_f32(divide_f32(size, {{ axis.outputs|f32 }}))), {{ fewest }}u, {{ most }}u);
    # if aligned
    if (intervals_{{ axis.name }}(samples) < 0.5) { return Extent(near + opaque(0.5 * size), far, 0.0, 1u); }
    # endif
    return Extent(near, far, divide_f32(size, intervals_{{ axis.name }}(samples)), samples);
}
// The number of a sample among those of all output elements, from the near end on.
fn number_{{ axis.name }}(extent: Extent, output: u32, sample: u32) -> f32 {
    return opaque(u32_to_f32(output) * u32_to_f32(extent.samples)) + u32_to_f32(sample) - bitcast<f32>({{ output_offset_bits }}u);
}
fn coordinate_{{ axis.name }}(extent: Extent, output: u32, sample: u32) -> f32 {
    let number = number_{{ axis.name }}(extent, output, sample);
    let between = extent.near + opaque(number * extent.step);
    # if aligned
    let is_far = number == intervals_{{ axis.name }}(extent.samples) && number > 0.5;
    return select(between, extent.far, is_far) - bitcast<f32>({{ input_offset_bits }}u);
    # else
    return between - bitcast<f32>({{ input_offset_bits }}u);
    # endif
}
// The samples of an output element between two coordinates: the first, and the one behind the last.
fn samples_{{ axis.name }}(extent: Extent, output: u32, low: f32, high: f32) -> vec2<u32> {
    let first = coordinate_{{ axis.name }}(extent, output, 0u);
    let from_low = (low - first) / extent.step;
    let from_high = (high - first) / extent.step;
    var end = min(f32_to_u32(max(from_low, from_high) + 3.0), extent.samples);
    var begin = min(f32_to_u32(min(from_low, from_high) - 2.0), end);
    if (extent.step == 0.0 || extent.samples < 8u) {
        begin = 0u;
        end = extent.samples;
    }
    end = begin + min(end - begin, {{ axis.longest }}u);
    for (; begin < end && !is_between(low, coordinate_{{ axis.name }}(extent, output, begin), high); begin += 1u) {}
    for (; begin < end && !is_between(low, coordinate_{{ axis.name }}(extent, output, end - 1u), high); end -= 1u) {}
    return vec2<u32>(begin, end);
}
fn place_{{ axis.name }}(coordinate: f32) -> Place {
    let within = clamp(coordinate, 0.0, {{ (axis.spatial - 1)|f32 }});
    # if linear
    let low = floor(within);
    return Place(u32(low), u32(low) + select(0u, 1u, within > low), within - low);
    # else
    let nearest = u32(max(ceil_f32(within - 0.5), 0.0));
    return Place(nearest, nearest, 0.0);
    # endif
}
# endfor
