// Quotients and remainders of numbers below 2^31 by parameters, whose multipliers and shifts come with them. Numbers are
// doubled, so that multipliers for a divisor of 1 have 32 bits as well.
fn quotient_by(number: u32, multiplier: u32, shift: u32) -> u32 {
    let doubled = number << 1u;
    # if has_u64
    return u32((u64(doubled) * u64(multiplier)) >> 32u) >> shift;
    # else
    let low = doubled & 0xffffu;
    let high = doubled >> 16u;
    let first = high * (multiplier & 0xffffu) + ((low * (multiplier & 0xffffu)) >> 16u);
    let second = low * (multiplier >> 16u) + (first & 0xffffu);
    return (high * (multiplier >> 16u) + (first >> 16u) + (second >> 16u)) >> shift;
    # endif
}
fn remainder_by(number: u32, divisor: u32, multiplier: u32, shift: u32) -> u32 {
    return number - quotient_by(number, multiplier, shift) * divisor;
}
