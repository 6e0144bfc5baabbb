// ADAM_OPTIMIZER: parameters - learning_rate * sqrt(1 - beta2^step) / (1 - beta1^step) * first / (sqrt(second) + epsilon).
// 1 - beta^step is -expm1(step * log(beta)), which keeps its precision for a beta near 1.
fn apply(parameters: parameters_s, first: first_s, second: second_s, step: step_s) -> output_s {
    let steps = {{ step.to(compute) }};
    let correction = sqrt(-expm1_f32(steps * {{ log_beta2 }})) / -expm1_f32(steps * {{ log_beta1 }});
    return parameters - opaque({{ learning_rate }}) * correction * first / (sqrt(second) + {{ epsilon }});
}
