// Adds two arrays element by element.
override THREADS = 64u;

struct Constants { count: u32 }

@group(0) @binding(0) var<storage, read> input_a: array<f32>;
@group(0) @binding(1) var<storage, read> input_b: array<f32>;
@group(0) @binding(2) var<storage, read_write> output: array<f32>;
@group(0) @binding(3) var<uniform> constants: Constants;

@compute @workgroup_size(THREADS)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < constants.count) {
        output[id.x] = input_a[id.x] + input_b[id.x];
    }
}
