// Zeros, for temporary tensors that start at 0.
fn element(at: output_at) -> output_t {
    return output_t();
}
