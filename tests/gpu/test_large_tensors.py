"""Tensors that exceed the adapter's largest binding: bound in parts, or computed part by part."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import NotSupported, Tensor, TensorDesc, descs, ops
from dmlgpu.catalog.enums import AxisDirection, DataType, ReduceFunction
from dmlgpu.compiler.stages import compile_operator
from dmlgpu.compiler.target import AdapterInfo, Profile, Target
from dmlgpu.compiler.wgsl.render import Part, parts_of
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.wgpu import GpuBackend

LIMITS = ((512, Profile.CPU), (2048, Profile.DISCRETE), (8192, Profile.CPU))
SHARE = 120
"""Of how many standard cases each adapter runs one by a limit."""

RNG = np.random.default_rng(34)


def limited(adapter: AdapterInfo, size: int, profile: Profile) -> dmlgpu.Device:
    """Return a device with a limit of bytes per binding."""
    backend = GpuBackend(adapter)
    backend.target = replace(backend.target, max_binding_size=size, profile=profile)
    backend.binder.context.target = backend.target
    return dmlgpu.Device.from_backend(backend)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "profile"), LIMITS)
def test_cases_of_operators(adapter: AdapterInfo, limit: int, profile: Profile) -> None:
    """Conformance cases are right or rejected by the limit; many of them bind in parts."""
    device = limited(adapter, limit, profile)
    share = SHARE * (4 if adapter.backend == "OpenGL" else 1)
    place = zlib.crc32(f"{profile} {limit}".encode()) % share
    names = [name for name in case_names("standard") if zlib.crc32(name.encode()) % share == place]
    right, parts = 0, 0
    for name in names:
        case = case_by_name(name)
        try:
            verdict = run_case(case, device)
        except NotSupported as error:
            assert (
                "split the tensors" in str(error)
                or "allows in one binding" in str(error)
                or "must fit one binding" in str(error)
                or (case.needs is not None and case.needs not in adapter.features)
            )
            continue
        assert verdict.ok, f"{name}: {verdict}"
        right += 1
        sizes = [slot.tensor.byte_size for slot in (*case.desc.inputs, *case.desc.outputs) if slot.tensor is not None]
        parts += max(sizes) > limit
    assert right > len(names) // 5
    assert parts > 0
    device.remove()


def test_regions_whose_samples_exceed_the_largest_binding(adapter: AdapterInfo) -> None:
    """The loop over the samples of an element is computed part by part, like any map."""
    device, reference = limited(adapter, 512, Profile.CPU), dmlgpu.Device("numpy")
    image, boxes = RNG.standard_normal((1, 3, 9, 9), dtype=np.float32), np.array([[1, 0, 7, 6]] * 2, np.float32)
    batches = np.zeros(2, np.uint32)

    def align(device: dmlgpu.Device) -> np.ndarray:
        operands = [Tensor(array, device=device) for array in (image, boxes, batches)]
        result = ops.directml.roi_align1(
            *operands, reduction_function="average", interpolation_mode="linear", minimum_samples_per_output=1,
            maximum_samples_per_output=2, output_sizes=(2, 3, 16, 16),
        )  # fmt: skip
        return result.numpy()

    expected = align(reference)
    assert expected.nbytes > 8 * 512  # more than all bindings of a kernel
    np.testing.assert_allclose(align(device), expected, atol=1e-5)
    device.remove()


def _wide(x: Any) -> Any:
    return (x * 1000).astype("int64")


WHOLE: dict[str, tuple[Callable[[Tensor], Any], Callable[[np.ndarray], Any]]] = {
    "sum": (ops.sum, lambda x: x.sum(dtype=np.float64)),
    "var": (ops.var, lambda x: x.var(dtype=np.float64)),
    "max along columns": (lambda x: ops.max(x, 0), lambda x: x.max(0)),
    "argmax": (ops.argmax, np.argmax),
    "argmax of 64-bit integers": (lambda x: ops.argmax(_wide(x)), lambda x: _wide(x).argmax()),
    "argmin along columns": (lambda x: ops.argmin(x, 0), lambda x: x.argmin(0)),
    "running sum": (ops.cumsum, lambda x: x.cumsum(dtype=np.float64)),
    "running sum from the end": (
        lambda x: ops.directml.cumulative_summation(x.reshape(-1), axis=0, axis_direction="decreasing"),
        lambda x: x.reshape(-1)[::-1].cumsum(dtype=np.float64)[::-1],
    ),
    "normalized": (
        lambda x: ops.layer_norm(x.reshape(-1)),
        lambda x: (x.reshape(-1) - x.mean()) / np.sqrt(x.var(dtype=np.float64) + 1e-5),
    ),
    "true elements": (lambda x: ops.sum(x > 0), lambda x: (x > 0).sum()),
}
SPREAD: dict[str, tuple[Callable[[Tensor], Any], Callable[[np.ndarray], Any]]] = {
    "sum with the transpose": (lambda x: x[:, :256] + x[:, :256].T, lambda x: x[:, :256] + x[:, :256].T),
    "rows": (lambda x: ops.take(x, np.array([255, 0, 128, 7]), axis=0), lambda x: x[[255, 0, 128, 7]]),
}


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
def test_a_tensor_beyond_all_bindings_of_a_kernel(adapter: AdapterInfo, profile: Profile) -> None:
    """Rows are reduced and scanned piece by piece, with few kernels; other steps need an adapter with more bindings."""
    device = limited(adapter, 1 << 16, profile)
    most = device.backend.target.max_storage_buffers
    matrix = RNG.standard_normal((256, 600), dtype=np.float32)
    matrix[200, 77] = matrix[250, 3] = 6  # the first of two largest elements, in the last piece but one
    tensor = Tensor(matrix, device=device)
    parts = -(-matrix.nbytes // (1 << 16))
    assert parts == 10
    cases = {name: case for name, case in WHOLE.items() if profile is Profile.CPU or name in {"argmax", "normalized"}}
    if most > 2 * parts and profile is Profile.CPU and adapter.backend == "Vulkan":
        cases |= SPREAD
    for name, (compute, expect) in cases.items():
        np.testing.assert_allclose(compute(tensor).numpy(), expect(matrix), rtol=1e-4, atol=1e-3, err_msg=name)
    device.remove()


def test_pieces_of_rows_and_lines_share_kernels() -> None:
    """A row ten times as large as what is bound takes no more different kernels than one three times as large."""
    target = Target("small bindings", Profile.DISCRETE, max_binding_size=1 << 16, max_storage_buffers=8)
    row = TensorDesc(DataType.FLOAT32, (1, 10 << 14))
    total = TensorDesc(DataType.FLOAT32, (1, 1))
    reduce = descs.Reduce(input_tensor=row, output_tensor=total, function=ReduceFunction.SUM, axes=(1,))
    scan = descs.CumulativeSummation(
        input_tensor=row, output_tensor=row, axis=1, axis_direction=AxisDirection.INCREASING, has_exclusive_sum=False
    )
    for desc, kernels, sources in ((reduce, 11, 3), (scan, 21, 3)):
        program = compile_operator(desc, target)
        assert (len(program.kernels), len({kernel.wgsl for kernel in program.kernels})) == (kernels, sources)


@pytest.mark.parametrize(
    ("size", "limit", "parts"),
    [
        (100, 256, [Part(0, 100)]),
        (256, 256, [Part(0, 256)]),
        (260, 256, [Part(0, 256, True), Part(256, 4)]),
        (1000, 700, [Part(0, 512, True), Part(512, 488)]),
        (768, 256, [Part(0, 256, True), Part(256, 256, True), Part(512, 256)]),
    ],
)
def test_parts(size: int, limit: int, parts: list[Part]) -> None:
    assert list(parts_of(size, limit)) == parts


@pytest.fixture(scope="module")
def large(adapter: AdapterInfo) -> Iterator[tuple[np.ndarray, Tensor]]:
    """A matrix of 6,000 x 6,000 in float32: 144 MB."""
    if adapter.backend == "OpenGL":
        pytest.skip("OpenGL's software driver runs the kernels of Vulkan's, and copies 144 MB slowly")
    matrix = RNG.standard_normal((6000, 6000), dtype=np.float32)
    device = dmlgpu.Device(adapter)
    if device.backend.target.max_binding_size >= matrix.nbytes:
        pytest.skip(f"{adapter} binds 144 MB at once")
    yield matrix, Tensor(matrix, device=device)
    device.remove()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("compute", "expect", "tolerance"),
    [
        (lambda x: x + x, lambda x: x + x, 0),
        (lambda x: x[1:] - x[:-1], lambda x: x[1:] - x[:-1], 0),
        (lambda x: ops.sum(x, axis=1), lambda x: x.sum(axis=1, dtype=np.float64), 1e-3),
        (ops.argmax, np.argmax, 0),
        (lambda x: ops.max(x, axis=0), lambda x: x.max(axis=0), 0),
        (ops.softmax, lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True), 1e-6),
        (lambda x: x @ x[:, :1], lambda x: x @ x[:, :1], 1e-2),
        (lambda x: x.astype("int8"), lambda x: np.trunc(x).astype(np.int8), 0),
        (lambda x: x[::-1, ::7].copy(), lambda x: x[::-1, ::7], 0),
        (lambda x: ops.take(x, np.array([5999, 0, 3000]), axis=0), lambda x: x[[5999, 0, 3000]], 0),
        (lambda x: ops.cumsum(x, axis=0)[::1000].copy(), lambda x: x.cumsum(axis=0, dtype=np.float64)[::1000], 1e-2),
    ],
)
def test_a_matrix_beyond_the_largest_binding(
    large: tuple[np.ndarray, Tensor],
    compute: Callable[[Tensor], Tensor],
    expect: Callable[[np.ndarray], Any],
    tolerance: float,
) -> None:
    matrix, tensor = large
    assert matrix.nbytes > tensor.device.backend.target.max_binding_size
    np.testing.assert_allclose(compute(tensor).numpy(), expect(matrix), rtol=0, atol=tolerance)
