// ELEMENT_WISE_POW of integers: output = input ^ exponent by squaring, modulo 2^width. A negative exponent gives the
// integer part of 1 / input ^ -exponent, and all ones for 1 / 0, as DIVIDE does.
fn apply(input: input_s, exponent: exponent_s) -> output_s {
    var left = bitcast<u32>(exponent);
    if ({{ exponent < 0 }}) {
        let is_minus_one = {{ (input < 0).both(input.equals(-1)) }};
        if (!is_minus_one && {{ input.equals(1).negated() }}) {
            return bitcast<output_s>(select(0u, 0xffffffffu, {{ input.equals(0) }}));
        }
        left &= 1u;
    }
    var square = bitcast<u32>(input);
    var power = 1u;
    while (left != 0u) {
        power *= select(1u, square, (left & 1u) == 1u);
        square *= square;
        left >>= 1u;
    }
    return bitcast<output_s>(power);
}
