// Comparing and clipping floats by their bits: NaN is in no relation to anything, subnormals count, both zeros are one.
// Drivers flush subnormals in their own comparisons, and some assume that there is no NaN.

// An integer that compares as the value does. NaN lies beyond the infinities.
fn order_f32(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return select(bits, -(bits & 0x7fffffff), bits < 0);
}

// Beyond one end lies a NaN that would pass for smaller than all, beyond the other one for larger.
fn less_f32(a: f32, b: f32) -> bool {
    let low = order_f32(a);
    let high = order_f32(b);
    return low < high && low >= -0x7f800000 && high <= 0x7f800000;
}

fn less_equal_f32(a: f32, b: f32) -> bool {
    let low = order_f32(a);
    let high = order_f32(b);
    return low <= high && low >= -0x7f800000 && high <= 0x7f800000;
}

fn equal_f32(a: f32, b: f32) -> bool {
    return order_f32(a) == order_f32(b) && !is_nan_f32(a);
}

fn is_positive_infinity_f32(x: f32) -> bool {
    return bitcast<u32>(x) == 0x7f800000u;
}

fn is_negative_infinity_f32(x: f32) -> bool {
    return bitcast<u32>(x) == 0xff800000u;
}

// max(low, min(x, high)) as max_f32 and min_f32 have it, at less cost.
fn clip_f32(x: f32, low: f32, high: f32) -> f32 {
    let place = max(rank_f32(low), min(rank_f32(x), rank_f32(high)));
    let clipped = bitcast<f32>(place ^ ((place >> 31u) & 0x7fffffff)); // rank_f32 undoes itself
    return select(select(select(clipped, high, is_nan_f32(high)), low, is_nan_f32(low)), x, is_nan_f32(x));
}
