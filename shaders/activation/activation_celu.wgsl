// ACTIVATION_CELU: output = max(0, input) + min(0, alpha * (e^(input / alpha) - 1)); NaN stays NaN
fn apply(input: input_s) -> output_s {
    return {{ input.maximum(0) + (alpha * (input / alpha).call("expm1")).minimum(0) }};
}
