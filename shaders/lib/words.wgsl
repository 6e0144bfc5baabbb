// 64-bit integers as pairs of words, low word first: for adapters without 64-bit arithmetic.

fn add_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let low = a.x + b.x;
    return vec2<u32>(low, a.y + b.y + select(0u, 1u, low < a.x));
}

fn subtract_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return vec2<u32>(a.x - b.x, a.y - b.y - select(0u, 1u, a.x < b.x));
}

fn negate_words(a: vec2<u32>) -> vec2<u32> {
    return subtract_words(vec2<u32>(0u), a);
}

// All 64 bits of a product of words, from four products of halves.
fn wide_product(a: u32, b: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let cross = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (cross & 0xffffu);
    return vec2<u32>((other << 16u) | (low & 0xffffu), (a >> 16u) * (b >> 16u) + (cross >> 16u) + (other >> 16u));
}

fn multiply_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let product = wide_product(a.x, b.x);
    return vec2<u32>(product.x, product.y + a.x * b.y + a.y * b.x);
}

// Shifts by 0 to 63 bits. A shift of a word by 32 is undefined, so it is done in two steps.
fn shift_left_words(a: vec2<u32>, count: u32) -> vec2<u32> {
    if (count >= 32u) { return vec2<u32>(0u, a.x << (count - 32u)); }
    return vec2<u32>(a.x << count, (a.y << count) | ((a.x >> 1u) >> (31u - count)));
}

fn shift_right_words(a: vec2<u32>, count: u32) -> vec2<u32> {
    if (count >= 32u) { return vec2<u32>(a.y >> (count - 32u), 0u); }
    return vec2<u32>((a.x >> count) | ((a.y << 1u) << (31u - count)), a.y >> count);
}

// Shifts by any count, taken modulo 64.
fn shift_left_u64_words(a: vec2<u32>, count: vec2<u32>) -> vec2<u32> {
    return shift_left_words(a, count.x & 63u);
}

fn shift_right_u64_words(a: vec2<u32>, count: vec2<u32>) -> vec2<u32> {
    return shift_right_words(a, count.x & 63u);
}

fn bit_count_u64_words(a: vec2<u32>) -> u32 {
    return countOneBits(a.x) + countOneBits(a.y);
}

fn less_u64_words(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.y < b.y || (a.y == b.y && a.x < b.x);
}

fn less_i64_words(a: vec2<u32>, b: vec2<u32>) -> bool {
    return less_u64_words(a ^ vec2<u32>(0u, 0x80000000u), b ^ vec2<u32>(0u, 0x80000000u));
}

fn is_negative_words(a: vec2<u32>) -> bool {
    return (a.y >> 31u) == 1u;
}

fn absolute_words(a: vec2<u32>) -> vec2<u32> {
    return select(a, negate_words(a), is_negative_words(a));
}

fn less_equal_u64_words(a: vec2<u32>, b: vec2<u32>) -> bool {
    return !less_u64_words(b, a);
}

fn less_equal_i64_words(a: vec2<u32>, b: vec2<u32>) -> bool {
    return !less_i64_words(b, a);
}

// ---- division: by zero quotient and remainder are all ones

struct Division {
    quotient: vec2<u32>,
    remainder: vec2<u32>,
}

// Long division, bit by bit.
fn divide_words(a: vec2<u32>, b: vec2<u32>) -> Division {
    if (b.x == 0u && b.y == 0u) { return Division(vec2<u32>(0xffffffffu), vec2<u32>(0xffffffffu)); }
    var quotient = a; // its bits leave at the top while those of the quotient enter at the bottom
    var remainder = vec2<u32>(0u);
    for (var bit = 0u; bit < 64u; bit++) {
        let overflows = (remainder.y >> 31u) == 1u;
        remainder = vec2<u32>((remainder.x << 1u) | (quotient.y >> 31u), (remainder.y << 1u) | (remainder.x >> 31u));
        let fits = overflows || less_equal_u64_words(b, remainder);
        remainder = select(remainder, subtract_words(remainder, b), fits);
        quotient = vec2<u32>((quotient.x << 1u) | select(0u, 1u, fits), (quotient.y << 1u) | (quotient.x >> 31u));
    }
    return Division(quotient, remainder);
}

fn quotient_u64_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return divide_words(a, b).quotient;
}

fn fmod_u64_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return divide_words(a, b).remainder;
}

fn floor_mod_u64_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    return divide_words(a, b).remainder;
}

// Towards zero.
fn quotient_i64_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (b.x == 0u && b.y == 0u) { return vec2<u32>(0xffffffffu); }
    let quotient = divide_words(absolute_words(a), absolute_words(b)).quotient;
    return select(quotient, negate_words(quotient), is_negative_words(a ^ b));
}

// With the sign of a.
fn fmod_i64_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    if (b.x == 0u && b.y == 0u) { return vec2<u32>(0xffffffffu); }
    let remainder = divide_words(absolute_words(a), absolute_words(b)).remainder;
    return select(remainder, negate_words(remainder), is_negative_words(a));
}

// With the sign of b.
fn floor_mod_i64_words(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
    let remainder = fmod_i64_words(a, b);
    let differs = is_negative_words(remainder ^ b) && (remainder.x | remainder.y) != 0u;
    return select(remainder, add_words(remainder, b), differs);
}
