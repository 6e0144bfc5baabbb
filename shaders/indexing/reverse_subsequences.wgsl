// REVERSE_SUBSEQUENCES: output[.., i, ..] = input[.., length - 1 - i, ..] where i < length, else input[.., i, ..]
// A length beyond the axis, which reads as OUTSIDE, means all of it.
fn place(at: output_at, source: ptr<function, input_at>) -> bool {
    var line = at;
    line[{{ axis }}] = 0u;
    let length = min(lengths_index(line, {{ output.sizes[axis] }}u), {{ output.sizes[axis] }}u);
    *source = at;
    if (at[{{ axis }}] < length) { (*source)[{{ axis }}] = length - 1u - at[{{ axis }}]; }
    return true;
}
