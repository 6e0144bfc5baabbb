// Writes two adjacent units at once; the first of them has an even index.
fn store_pair(at: output_at, first: vec4<u32>, second: vec4<u32>) {
    let low = vec4<u64>(u64(first.x), u64(first.z), u64(second.x), u64(second.z));
    let high = vec4<u64>(u64(first.y), u64(first.w), u64(second.y), u64(second.w));
    {{ buffer.store }}((output_base() + output_unit(at)) / 2u, (high << vec4<u32>(32u)) | low);
}
