// Half the sum of two numbers.

// Correctly rounded: the sum of large numbers would overflow where its half does not. Compilers make 0.5 * (a + b) of
// 0.5 * a + 0.5 * b.
fn mean_f32(a: f32, b: f32) -> f32 {
    let sum = a + b;
    return select(0.5 * sum, opaque(0.5 * a) + opaque(0.5 * b), is_not_finite(sum));
}

// The sum of integers wraps, its half is cut towards zero.
fn mean_u32(a: u32, b: u32) -> u32 {
    return (a + b) >> 1u;
}

fn mean_i32(a: i32, b: i32) -> i32 {
    return quotient_i32(a + b, 2);
}
