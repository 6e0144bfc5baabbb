// The element of a body that only says where in its input an element lies; 0 where it lies nowhere.
fn element(at: output_at) -> output_t {
    var source: input_at;
    if (!place(at, &source)) { return output_t(); }
    return input_load(source);
}
