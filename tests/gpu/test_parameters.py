"""Kernels that read sizes from parameters, on each adapter: right, and shared."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DataType, Device, TensorDesc, descs, ops
from dmlgpu.common.errors import BindingError, NotSupported
from dmlgpu.compiler.target import Profile
from dmlgpu.conformance.cases.registry import case_by_name, case_names
from dmlgpu.conformance.running.runner import run_case
from dmlgpu.runtime.executor import Range, Resources
from dmlgpu.runtime.specialization import Specialize, Specializer
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors import directml
from dmlgpu.tensors.session import session_of
from tests.samples import share_and_place

SHARE = 160
"""Of how many standard cases one runs; all do with ``--profile full``."""

RNG = np.random.default_rng(37)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [Specialize.NEVER, Specialize.AUTO])
def test_cases_of_operators(
    device: Device,
    schedules: str,
    policy: Specialize,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    share, place = share_and_place(request, SHARE, device.adapter, schedules, policy)
    names = [name for name in case_names("standard") if zlib.crc32(name.encode()) % share == place]
    right = 0
    for name in names:
        case = case_by_name(name)
        monkeypatch.setattr(device.backend, "specializer", Specializer(policy))  # a new one: the first sizes
        try:
            verdict = run_case(case, device)
        except NotSupported:
            assert case.needs is not None
            assert case.needs not in device.adapter.features
            continue
        assert verdict.ok, f"{name}: {verdict}"
        right += 1
    assert right > len(names) * 0.9


def test_each_size_is_checked_before_its_dispatch(backend: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes that share a pipeline are checked one by one: the memory bound, the grid, the largest binding."""
    monkeypatch.setattr(backend, "specializer", Specializer(Specialize.NEVER))

    def cosine(size: int) -> descs.ElementWiseCos:
        tensor = TensorDesc(DataType.FLOAT32, (size, 6))
        return descs.ElementWiseCos(input_tensor=tensor, output_tensor=tensor)

    small, large = backend.compile(cosine(40)), backend.compile(cosine(200))
    assert large.new == []  # type: ignore[attr-defined]
    buffer = backend.create_buffer(2 * 24 * 40, "memory")
    memory = Resources((Range(buffer, 0, 24 * 40),), (Range(buffer, 24 * 40, 24 * 40),))
    with pytest.raises(BindingError, match=r"needs 4,800 bytes of output 0, got 960"):
        large.bind(memory)
    backend.wait(backend.submit(small.bind(memory)))
    assert (backend.read(buffer, 24 * 40, 24 * 40).view(np.float32) == 1).all()

    target = backend.target
    for limits, message in (
        ({"max_workgroups_per_dimension": 4}, r"workgroups exceed what .* dispatches at once \(4 x 4\)"),
        ({"max_binding_size": 512}, "takes 1,572,864 bytes, but .* binds at most 512 at once"),
    ):
        monkeypatch.setattr(backend, "target", replace(target, **limits))
        with pytest.raises(NotSupported, match=message):
            backend.compile(cosine(1 << 16))


def test_new_sizes_bring_no_pipelines(backend: GpuBackend) -> None:
    device = Device(backend.info, specialize="never")
    for index in range(40):
        x = RNG.standard_normal((2 + index, 36), dtype=np.float32)
        result = ops.softmax(dmlgpu.Tensor(x, device=device) * 2 + 1)
        exponents = np.exp(2 * x - 2 * x.max(axis=1, keepdims=True))
        np.testing.assert_allclose(result.numpy(), exponents / exponents.sum(axis=1, keepdims=True), atol=1e-6)
        if index == 1:
            known = device.pipeline_cache.info.entries
    assert device.pipeline_cache.info.entries <= known + 2
    device.remove()


@pytest.mark.parametrize(("policy", "is_shared"), [(Specialize.NEVER, True), (Specialize.ALWAYS, False)])
def test_a_second_model_shares_sources(fresh: GpuBackend, policy: Specialize, is_shared: bool) -> None:
    """On a device of its own, as in another process: the driver's cache has its kernels."""
    sources: list[set[str]] = []
    weights = RNG.standard_normal((2, 48, 48), dtype=np.float32)
    for backend, model, rows in (
        (fresh, lambda x: ops.softmax(x @ weights[0], axis=-1), 6),
        (GpuBackend(fresh.info), lambda x: ops.softmax(ops.softmax(x, axis=0) @ weights[1], axis=-1), 14),
    ):
        backend.specializer = Specializer(policy)
        x = RNG.standard_normal((rows, 48), dtype=np.float32)
        dmlgpu.compile(model, device=Device.from_backend(backend))(x)
        sources.append({source for source, *_ in backend.pipelines.living})
        backend.close()
    first, second = sources
    assert bool(first & second) is is_shared


def test_coordinates_of_other_sizes_take_no_other_pipelines(fresh: GpuBackend) -> None:
    fresh.specializer = Specializer(Specialize.NEVER)
    device = Device.from_backend(fresh)
    known: set[str] = set()
    for rows, columns in ((61, 7), (67, 9), (71, 11), (73, 13), (79, 7), (83, 5)):
        x = RNG.integers(0, 2, (rows, columns)).astype(np.float32)
        count, places = directml.nonzero_coordinates(dmlgpu.Tensor(x, device=device))
        np.testing.assert_array_equal(places.numpy()[: count.numpy().item()], np.argwhere(x))
        sources = {source for source, *_ in fresh.pipelines.living}
        known = known or sources
        assert sources == known
    device.remove()


@pytest.mark.parametrize("profile", [Profile.CPU, Profile.DISCRETE])
def test_a_thousand_sizes_take_few_pipelines(fresh: GpuBackend, profile: Profile) -> None:
    """Rows and columns grow in eager calls. Vector widths, powers of two, and tiles of products change kernels."""
    fresh.target = replace(fresh.target, profile=profile)
    fresh.specializer = Specializer(Specialize.AUTO)
    device = Device.from_backend(fresh)
    weights = dmlgpu.Tensor(RNG.standard_normal((400, 24), dtype=np.float32), device=device)
    functions = {
        "add": (lambda x: x + x, lambda x: x + x),
        "softmax": (ops.softmax, lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)),
        "matmul": (lambda x: x @ weights[: x.shape[1]], lambda x: x @ weights.numpy()[: x.shape[1]]),
    }
    counts: dict[str, int] = {}
    known = device.pipeline_cache.info.misses
    for name, (function, expected) in functions.items():
        for size in range(1, 168):
            for shape in ((size, 48), (3, 32 + size)):
                x = RNG.standard_normal(shape, dtype=np.float32)
                result = function(dmlgpu.Tensor(x, device=device))
                if size % 24 == 0:
                    np.testing.assert_allclose(result.numpy(), expected(x), rtol=1e-3, atol=1e-4)
        counts[name] = device.pipeline_cache.info.misses - known
        known = device.pipeline_cache.info.misses
    assert max(counts.values()) <= 24, counts  # 3 x 334 if each size had its own
    session = session_of(device)
    for cache in (device.pipeline_cache, session.calls, session.recorded):
        assert cache.info.entries <= cache.limits.entries
        assert cache.info.size <= cache.limits.size
    device.remove()


def test_a_function_shares_kernels_from_its_second_shape_on(backend: GpuBackend) -> None:
    device = Device(backend.info)
    weights = dmlgpu.Tensor(RNG.standard_normal((32, 32), dtype=np.float32), device=device)

    @dmlgpu.compile
    def layer(x: dmlgpu.Tensor) -> dmlgpu.Tensor:
        return ops.relu(ops.layer_norm(x) @ weights)

    counts = []
    for rows in (64, 96, 128, 160):
        x = RNG.standard_normal((rows, 32), dtype=np.float32)
        centered = x.astype(np.float64) - x.mean(axis=1, keepdims=True)
        normalized = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
        result = layer(dmlgpu.Tensor(x, device=device))
        np.testing.assert_allclose(result.numpy(), np.maximum(normalized @ weights.numpy(), 0), atol=1e-4)
        counts.append(device.pipeline_cache.info.entries)
    assert counts[0] < counts[1] == counts[2] == counts[3]
    device.remove()
