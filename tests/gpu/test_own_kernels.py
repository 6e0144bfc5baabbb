"""Kernels that users write in WGSL: RawKernel's and ElementwiseKernel's manner, on every adapter."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import ElementwiseKernel, InvalidArgument, InvalidState, Kernel, NotSupported, ShaderError, Tensor
from dmlgpu.compiler.target import AdapterInfo
from dmlgpu.runtime.device import as_device

PAGE = Path(__file__).resolve().parents[2] / "docs" / "kernels.md"
SAXPY = """
struct Scale { factor: f32, shift: f32 }

@group(0) @binding(0) var<uniform> scale: Scale;
@group(0) @binding(1) var<storage, read> x: array<f32>; // not y: array<i32>
@group(0) @binding(3) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> sums: array<atomic<u32>>;
override step: u32 = 1u;

@compute @workgroup_size(8, 4)
fn saxpy(@builtin(global_invocation_id) id: vec3<u32>, @builtin(local_invocation_index) local: u32,
         @builtin(workgroup_id) group: vec3<u32>) {
    let i = group.x * 32u + local;
    if (i >= arrayLength(&y)) { return; }
    y[i] += scale.factor * x[i] + scale.shift;
    atomicAdd(&sums[0], step);
}
"""
DOUBLE = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@compute @workgroup_size(64)
fn double(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x < arrayLength(&y)) { y[id.x] = 2.0 * x[id.x]; }
}
"""
X = np.linspace(-3, 5, 100, dtype=np.float32)
SCALE = np.array([(2.5, -1)], [("factor", np.float32), ("shift", np.float32)])


@pytest.fixture
def device(adapter: AdapterInfo) -> dmlgpu.Device:
    return as_device("tests", str(adapter))


def test_all_kinds_of_bindings(device: dmlgpu.Device) -> None:
    kernel = Kernel(SAXPY, constants={"step": 3})
    y = np.ones(100, np.float32)
    sums, result = kernel(SCALE, X, y, outputs={"sums": ((1,), "uint32")}, grid=4, device=device)
    np.testing.assert_allclose(result, 1 + 2.5 * X - 1, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(sums, [300])
    np.testing.assert_array_equal(y, 1)


def test_tensors_give_tensors_and_stay_as_they_are(device: dmlgpu.Device) -> None:
    x, y = Tensor(X, device=device), Tensor(X * 3, device=device)
    kernel = Kernel(SAXPY)
    sums, result = kernel(scale=SCALE, x=x, y=y, sums=np.full(1, 7, np.uint32), grid=(4, 1, 1))
    assert isinstance(result, Tensor)
    np.testing.assert_allclose(result.numpy(), 3 * X + 2.5 * X - 1, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y.numpy(), X * 3)
    np.testing.assert_array_equal(sums.numpy(), [107])


def test_views_are_packed(device: dmlgpu.Device) -> None:
    matrix = np.arange(60, dtype=np.float32).reshape(6, 10)
    view = Tensor(matrix, device=device).T[2:9:3]
    result = Kernel(DOUBLE)(view, outputs={"y": (view.shape, "float32")})
    np.testing.assert_array_equal(result.numpy(), 2 * matrix.T[2:9:3])


def test_results_feed_operators_and_kernels(device: dmlgpu.Device) -> None:
    x, double = Tensor(X, device=device), Kernel(DOUBLE)
    spec = {"y": (X.shape, "float32")}
    result = double(dmlgpu.ops.exp(double(x, outputs=spec)) + 1, outputs=spec)
    np.testing.assert_allclose(result.numpy(), 2 * (np.exp(2 * X) + 1), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.uint32])
def test_elementwise(device: dmlgpu.Device, dtype: Any) -> None:
    kernel = ElementwiseKernel("T x, T y, float32 scale", "T z, uint32 place", "z = x * x - y; place = i + u32(scale)")
    rng = np.random.default_rng(3)
    x, y = rng.integers(5, 9, (7, 1, 33)).astype(dtype), rng.integers(0, 5, (4, 1)).astype(dtype)
    z, place = kernel(Tensor(x, device=device), y, 2.0)
    np.testing.assert_array_equal(z.numpy(), x * x - y)
    np.testing.assert_array_equal(place.numpy(), np.arange(7 * 4 * 33).reshape(7, 4, 33) + 2)


def test_elementwise_of_many_elements(device: dmlgpu.Device) -> None:
    """More workgroups than WebGPU allows along one axis."""
    x = np.arange(65535 * 64 + 100, dtype=np.uint32)
    result = ElementwiseKernel("uint32 x", "uint32 z", "z = x + i", "sum_up")(x, device=device)
    np.testing.assert_array_equal(result, 2 * x)


def test_compile_errors_show_the_line(device: dmlgpu.Device) -> None:
    with pytest.raises(ShaderError, match=r"(?s)broken does not compile.*z = x \+;"):
        ElementwiseKernel("float32 x", "float32 z", "z = x +", "broken")(X, device=device)


def test_more_buffers_than_the_adapter_binds_are_rejected(adapter: AdapterInfo, device: dmlgpu.Device) -> None:
    limit = adapter.limits["max-storage-buffers-per-shader-stage"]
    if limit > 100:
        pytest.skip(f"the adapter binds {limit:,} buffers to a kernel")
    names = [f"x{place}" for place in range(limit + 1)]
    declared = (
        f"@group(0) @binding({place}) var<storage, read_write> {name}: array<u32>;" for place, name in enumerate(names)
    )
    entry_point = f"@compute @workgroup_size(1) fn many() {{ x0[0] = {' + '.join(f'{name}[0]' for name in names)}; }}"
    kernel = Kernel("\n".join([*declared, entry_point]))
    outputs = dict.fromkeys(names, ((4,), "uint32"))
    message = rf"many: .* binds up to {limit} storage buffers to a kernel, the source has {limit + 1}; put"
    with pytest.raises(NotSupported, match=message):
        kernel(outputs=outputs, grid=1, device=device)


def test_a_grid_beyond_the_limit_is_rejected(device: dmlgpu.Device) -> None:
    with pytest.raises(NotSupported, match="at most"):
        Kernel(DOUBLE)(X, outputs={"y": (X.shape, "float32")}, grid=1 << 20, device=device)


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: Kernel("fn f() {}"), r"entry_point must be one of the @compute functions of the source \(none\)"),
        (lambda: Kernel(DOUBLE, "f"), r"\(double\), got 'f'"),
        (lambda: Kernel(DOUBLE, constants={"n": 1}), r"overrides of the source \(none\), got 'n'"),
        (lambda: Kernel(7), "source must be WGSL in a string, got 7 of type int"),  # type: ignore[arg-type]
        (lambda: Kernel(DOUBLE.replace("group(0)", "group(1)")), r"must be in @group\(0\), got @group\(1\)"),
        (lambda: Kernel(DOUBLE)(X), r"2 positional arguments are needed \(x, y\), got 1"),
        (lambda: Kernel(DOUBLE)(X, X, z=X), "the bindings are x, y, got an argument 'z'"),
        (lambda: Kernel(DOUBLE)(X, outputs={"x": ((1,), "float32")}), "outputs must be among y, got 'x'"),
        (lambda: Kernel(DOUBLE)(X.astype(np.int32), X), "x must be of float32, as array<f32> says, got int32"),
        (lambda: Kernel(DOUBLE)(X[:0], X), "at least one element"),
        (
            lambda: Kernel(DOUBLE.replace("array<f32>", "array<vec3<f32>>"))(X[:99].reshape(33, 3), X),
            r"x must have the shape \[33, 4\], got \[33, 3\]: each vector of array<vec3<f32>> takes 4 elements",
        ),
        (
            lambda: Kernel(DOUBLE.replace("array<f32>", "array<vec3f>"))(X, outputs={"y": ((33,), "float32")}),
            r"x must have the shape \[\.\.\., 4\], got \[100\]: each vector of array<vec3f> takes 4 elements",
        ),
        (lambda: Kernel(DOUBLE)("x", X), "x must be a Tensor, an array or a number"),
        (lambda: Kernel(DOUBLE)(X, X, grid=0), "one to three positive integers, got 0"),
        (lambda: ElementwiseKernel("float32", "float32 z", "z = 1.0"), "inputs must be dtypes"),
        (lambda: ElementwiseKernel("float32 x", "T z", "z = x"), "the dtype T of output z must be one of an input"),
        (lambda: ElementwiseKernel("float32 x", "float32 z", "z = x")(X, X), "1 arguments are needed, got 2"),
        (lambda: ElementwiseKernel("T x", "T z", "z = x")(X.astype(np.int64)), "x must be of float32, .*got int64"),
        (lambda: ElementwiseKernel("T x", "T z", "z = x")(1.0), "x must be a Tensor or an array, since T is its dtype"),
        (
            lambda: ElementwiseKernel("float32 x, float32 y", "float32 z", "z = x")(X, X[:3]),
            r"must broadcast, got shapes \[100\], \[3\]",
        ),
    ],
)
def test_wrong_arguments(
    attempt: Callable[[], Any], message: str, adapter: AdapterInfo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dmlgpu.tensors.kernels.as_device", lambda caller, _device: as_device(caller, str(adapter)))
    with pytest.raises(InvalidArgument, match=message):
        attempt()


def test_tracing_is_rejected(device: dmlgpu.Device) -> None:
    double = Kernel(DOUBLE)
    with pytest.raises(InvalidState, match=r"double: kernels cannot run inside a function that dmlgpu\.compile traces"):
        dmlgpu.compile(lambda x: double(x, outputs={"y": ((1,), "float32")}))(Tensor(X, device=device))


def test_vectors_of_three_are_padded(device: dmlgpu.Device) -> None:
    padded = np.pad(X[:99].reshape(33, 3), ((0, 0), (0, 1)))
    double = Kernel(DOUBLE.replace("array<f32>", "array<vec3<f32>>"))
    result = double(dmlgpu.Tensor(padded, device=device), outputs={"y": ((33, 4), "float32")}).numpy()
    assert np.array_equal(result[:, :3], 2 * padded[:, :3])


def test_the_reference_runs_no_shaders() -> None:
    with pytest.raises(NotSupported, match="kernels in WGSL need a GPU adapter"):
        Kernel(DOUBLE)(X, X, device="numpy")


def test_the_page_runs_as_it_is_written(adapter: AdapterInfo, tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    environment = {**os.environ, "DMLGPU_ADAPTER": str(adapter)}
    result = subprocess.run(
        [sys.executable, script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert len(re.findall(r"11 rounds\)", result.stdout)) == 2


def test_directives_for_browsers_are_accepted(backend: Any) -> None:
    """``enable subgroups;`` must be there for Tint, which naga does not know."""
    device = dmlgpu.Device.from_backend(backend)
    if "subgroup" not in backend.target.features:
        pytest.skip("the adapter has no subgroups")
    total = Kernel("""
        enable subgroups;
        @group(0) @binding(0) var<storage, read_write> sums: array<u32>;
        @compute @workgroup_size(32) fn main(@builtin(local_invocation_index) i: u32) {
            let sum = subgroupAdd(1u);
            sums[i] = sum;
        }
    """)
    sums = total(outputs={"sums": ((32,), "uint32")}, device=device)
    assert set(np.asarray(sums).tolist()) <= {4, 8, 16, 32}


def test_immediates_are_rejected(device: Any) -> None:
    kernel = Kernel("""
        var<immediate> n: u32;
        @group(0) @binding(0) var<storage, read_write> c: array<u32>;
        @compute @workgroup_size(1) fn main() { c[0] = n; }
    """)
    with pytest.raises(InvalidArgument, match=r"'n' is in var<immediate>, which a call cannot fill"):
        kernel(outputs={"c": ((1,), "uint32")}, device=device)
