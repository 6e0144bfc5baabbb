// VALUE_SCALE_2D: output = scale * input + bias of the channel
fn apply(input: input_s, bias: bias_s) -> output_s {
    return input * {{ scale }} + bias;
}
