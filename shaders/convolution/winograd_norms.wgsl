// CONVOLUTION, Winograd: the norm of the channels of a pixel, sqrt(sum(x * x)), infinite if a square is, one channel after the other
fn element(at: output_at) -> output_t {
    var source = at;
    var squares = 0.0;
    for (var channel = 0u; channel < {{ channels }}u; channel++) {
        source[4] = channel;
        let value = input_load(source);
        squares += value * value;
    }
    return sqrt(squares);
}
