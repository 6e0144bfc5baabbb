// The input at a sample.
fn interpolated(batch: u32, channel: u32, y: Place, x: Place) -> f32 {
    # if linear
    let upper = input_load(input_at(batch, channel, y.low, x.low)) * (1.0 - x.rest) + input_load(input_at(batch, channel, y.low, x.high)) * x.rest;
    let lower = input_load(input_at(batch, channel, y.high, x.low)) * (1.0 - x.rest) + input_load(input_at(batch, channel, y.high, x.high)) * x.rest;
    return upper * (1.0 - y.rest) + lower * y.rest;
    # else
    return input_load(input_at(batch, channel, y.low, x.low));
    # endif
}
