// Element of a body that only computes a position in its input; 0 if there is none.
fn element(at: output_at) -> output_t {
    var source: input_at;
    if (!{{ resolved("place") }}(at, &source)) { return output_t(); }
    return input_load(source);
}
