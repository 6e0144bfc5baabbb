// Mean and variance of a row.
{% include "normalization/moments_merge" %}
{% include "normalization/moments_of_many" %}
fn finish(acc: acc_t) -> vec4<f32> {
    return vec4<f32>(acc.y, acc.z, acc.w / acc.x, acc.x);
}
