"""Eager functions and tensors on every adapter, against NumPy, SciPy and ONNX."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device, Tensor, ops
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.session import session_of
from tests.eager_functions import EXAMPLES, Example, floats

SAMPLE = [
    example
    for example in EXAMPLES
    if example.name in {"add", "clip", "where numbers", "var None", "topk", "take 1", "linear"}
]


@pytest.fixture(scope="module")
def plain(backend: GpuBackend) -> Device:
    """A device on each adapter."""
    return Device.from_backend(backend)


@pytest.mark.parametrize("example", SAMPLE, ids=lambda example: example.name)
def test_results_match_other_libraries(example: Example, plain: Device) -> None:
    result = example.call(*(Tensor(operand, device=plain) for operand in example.operands))
    np.testing.assert_allclose(result.numpy(), example.expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["uint8", "float32"])
def test_a_view_may_begin_anywhere(plain: Device, dtype: str) -> None:
    array = np.arange(28).astype(dtype).reshape(4, 7)
    x = Tensor(array, device=plain)
    for row in (0, 3):
        for column in (0, 5):
            view = x[row:, column:]
            assert np.array_equal(view.numpy(), array[row:, column:])
            assert np.array_equal((view + view.flip(1)).numpy(), array[row:, column:] + array[row:, : column - 8 : -1])


def test_masks_and_quotients_are_those_of_numpy(plain: Device) -> None:
    special = np.array([0, -0.0, 1, -1, 6, -7, 0.1, 0.7, 1e6, np.inf, -np.inf, np.nan], np.float32)
    x, y = (part.reshape(-1) for part in np.meshgrid(special, special))
    whole, divisors = np.array([7, -7, 0, -(2**31), 5], np.int32), np.array([2, 2, 0, -1, -3], np.int32)

    def results(x: Any, y: Any, a: Any, b: Any, where: Any) -> list[Any]:
        mask, other = x > 0, y > 1
        masks = [2 * mask - 1, mask + other, mask * other, mask @ other, where(mask, 1, -1), x * mask, (a > 0) / 2]
        return [*masks, x // y, x % y, a // b, a % b, a / 4, a * 0.5]

    with np.errstate(all="ignore"):
        expected = results(x, y, whole, divisors, np.where)
    operands = [Tensor(array, device=plain) for array in (x, y, whole, divisors)]
    compiled = dmlgpu.compile(lambda *tensors: results(*tensors, ops.where))
    for index, (result, right) in enumerate(zip(compiled(*operands), expected, strict=True)):
        dtype = np.float32 if right.dtype == np.float64 else right.dtype
        assert result.dtype == dtype, index
        np.testing.assert_array_equal(result.numpy(), right.astype(dtype), f"result {index}")


def test_synchronize_waits_for_eager_work(plain: Device) -> None:
    x = Tensor(floats(256, 256), device=plain)
    for _ in range(5):
        x = ops.tanh(x @ x)
    plain.synchronize()
    serial = plain._state.last_serial
    assert serial is not None and plain.backend.is_done(serial)


def test_memory_info_counts_tensors(fresh: GpuBackend) -> None:
    device = Device.from_backend(fresh)
    before = ops.memory_info(device)
    x = Tensor(floats(1024, 64), device=device)
    info = ops.memory_info(device)
    assert info.allocated - info.unused - (before.allocated - before.unused) >= x.nbytes
    del x
    ops.free_memory(device)
    assert ops.memory_info(device)[:2] == (before.allocated, 0)


def test_a_loop_of_temporaries_allocates_nothing(fresh: GpuBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device.from_backend(fresh)
    created: list[int] = []
    create = fresh.allocator.create

    def counted(size: int, *options: object, **named: object) -> object:
        created.append(size)
        return create(size, *options, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(fresh.allocator, "create", counted)
    x, w = Tensor(floats(16, 24), device=device), Tensor(floats(24, 24), device=device)

    def step(x: Tensor) -> Tensor:
        return ops.softmax(x @ w * 2 + 1) - ops.mean(x, axis=0)

    for _ in range(3):
        step(x)
    before, bindings = len(created), session_of(device).bindings
    for _ in range(20):
        step(x)
    assert len(created) == before > 0
    assert session_of(device).bindings == bindings
    ops.free_memory(device)
    assert session_of(device).pool.cached_bytes == 0
