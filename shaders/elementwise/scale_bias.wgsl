// The ScaleBias of an element-wise operator, and ACTIVATION_LINEAR: output = input * scale + bias, in float32 (FLOAT64: in
// float64), converted back as CAST does.
fn apply(input: input_s) -> output_s {
    return {{ (input.to(compute, portable=False) * scale + bias).to(output.data_type, portable=output.portable) }};
}
