// Integers of 32 bits where drivers go wrong or the language leaves something open: division (OpenGL has the signed %
// wrong, and division by zero), shifts at and beyond the width. Narrower integers are computed in these and cut when
// stored.

// ---- division: by zero quotient and remainder are all ones; the smallest integer by -1 wraps

fn quotient_u32(a: u32, b: u32) -> u32 {
    return select(a / max(b, 1u), 0xffffffffu, b == 0u);
}

fn fmod_u32(a: u32, b: u32) -> u32 {
    return select(a - quotient_u32(a, b) * b, 0xffffffffu, b == 0u);
}

fn floor_mod_u32(a: u32, b: u32) -> u32 {
    return fmod_u32(a, b);
}

// The value without its sign; that of the smallest integer is 2^31.
fn size_of_i32(a: i32) -> u32 {
    let bits = bitcast<u32>(a);
    return select(bits, 0u - bits, a < 0);
}

// Towards zero.
fn quotient_i32(a: i32, b: i32) -> i32 {
    let quotient = quotient_u32(size_of_i32(a), size_of_i32(b));
    return bitcast<i32>(select(quotient, 0u - quotient, (a ^ b) < 0 && b != 0));
}

// With the sign of a.
fn fmod_i32(a: i32, b: i32) -> i32 {
    let remainder = fmod_u32(size_of_i32(a), size_of_i32(b));
    return bitcast<i32>(select(remainder, 0u - remainder, a < 0 && b != 0));
}

// With the sign of b.
fn floor_mod_i32(a: i32, b: i32) -> i32 {
    let remainder = fmod_i32(a, b);
    return select(remainder, remainder + b, (remainder ^ b) < 0 && remainder != 0);
}

// ---- division of integers of 8 and 16 bits, which floats do faster: half a unit keeps quotients off the integers,
// further than the error of any driver's division reaches

fn narrow_quotient_i32(a: i32, b: i32) -> i32 {
    let quotient = i32((f32(a) + select(0.5, -0.5, a < 0)) / f32(b));
    return select(quotient, -1, b == 0);
}

fn narrow_fmod_i32(a: i32, b: i32) -> i32 {
    return select(a - narrow_quotient_i32(a, b) * b, -1, b == 0);
}

fn narrow_floor_mod_i32(a: i32, b: i32) -> i32 {
    let remainder = narrow_fmod_i32(a, b);
    return select(remainder, remainder + b, (remainder ^ b) < 0 && remainder != 0);
}

// Unsigned ones are small enough to be signed, which drivers convert faster.
fn narrow_quotient_u32(a: u32, b: u32) -> u32 {
    return bitcast<u32>(narrow_quotient_i32(bitcast<i32>(a), bitcast<i32>(b)));
}

fn narrow_fmod_u32(a: u32, b: u32) -> u32 {
    return bitcast<u32>(narrow_fmod_i32(bitcast<i32>(a), bitcast<i32>(b)));
}

fn narrow_floor_mod_u32(a: u32, b: u32) -> u32 {
    return narrow_fmod_u32(a, b);
}

// ---- bits: shifts by any count, taken modulo 32

fn shift_left_u32(a: u32, count: u32) -> u32 {
    return a << (count & 31u);
}

fn shift_right_u32(a: u32, count: u32) -> u32 {
    return a >> (count & 31u);
}

fn bit_count_u32(a: u32) -> u32 {
    return countOneBits(a);
}
