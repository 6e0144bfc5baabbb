// Units of keys and values along a head, for invocations that hold rows and their sums in registers.
alias sum_t = vec4<f32>;
const LOWEST = -3.4028234e38f;
# if causal
var<workgroup> most_visible: u32;
# endif
{% include "schedules/attention_weight" %}
fn key_along(batch: u32, key: u32, unit: u32) -> sum_t {
    return key_step(key_start(batch, key), unit * 4u);
}
fn value_along(batch: u32, key: u32, unit: u32) -> sum_t {
    var at = value_place(batch, key);
    at[3] = unit;
    return value_load(at);
}
