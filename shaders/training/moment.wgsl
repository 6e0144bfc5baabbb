// ADAM_OPTIMIZER: moment = beta * moment + (1 - beta) * gradient, of the gradient or of its square
fn apply(moment: moment_s, gradient: gradient_s) -> output_s {
    # if squared
    return {{ beta }} * moment + {{ rest }} * (gradient * gradient);
    # else
    return {{ beta }} * moment + {{ rest }} * gradient;
    # endif
}
