// An integer less its zero point, exactly; wide ones are computed in 64 bits before they become float32.
fn apply(input: input_s, zero_point: zero_point_s) -> output_s {
    return {{ (input.to(integer) - zero_point.to(integer)).to(output.data_type) }};
}
