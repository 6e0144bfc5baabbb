// ELEMENT_WISE_IDENTITY, ACTIVATION_IDENTITY: output = input
fn element(at: output_at) -> output_t {
    return input_load(at);
}
