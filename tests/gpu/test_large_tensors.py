"""Tensors that exceed the adapter's largest binding: bound in parts, or computed part by part."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import NotSupported, Tensor, ops
from dmlgpu.compiler.target import AdapterInfo, Profile
from dmlgpu.compiler.wgsl.spreading import Part, parts_of
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.wgpu import GpuBackend

LIMITS = ((512, Profile.CPU), (2048, Profile.DISCRETE), (8192, Profile.CPU))
SHARE = 120
"""Of how many standard cases each adapter runs one by a limit."""

RNG = np.random.default_rng(34)


def limited(adapter: AdapterInfo, size: int, profile: Profile) -> dmlgpu.Device:
    """Return a device that binds at most so many bytes at once."""
    backend = GpuBackend(adapter)
    backend.target = replace(backend.target, max_binding_size=size, profile=profile)
    backend._binder.context.target = backend.target
    return dmlgpu.Device.from_backend(backend)


@pytest.mark.parametrize(("limit", "profile"), LIMITS)
def test_cases_of_operators(adapter: AdapterInfo, limit: int, profile: Profile) -> None:
    """Conformance cases are right or refused by the limit; many of them bind in parts."""
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
