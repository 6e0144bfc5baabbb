// ADAM_OPTIMIZER: moment = beta * moment + (1 - beta) * gradient, of the gradient or of its square
fn apply(moment: moment_s, gradient: gradient_s) -> output_s {
    // Also a factor of 0 makes NaN of what is not finite; compilers that know it would drop the product.
    # if squared
    return opaque({{ beta }}) * moment + opaque({{ rest }}) * (gradient * gradient);
    # else
    return opaque({{ beta }}) * moment + opaque({{ rest }}) * gradient;
    # endif
}
