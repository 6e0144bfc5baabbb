"""Compiled functions on every adapter: the values of eager calls, and how many kernels they take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import Device, Tensor, ops
from dmlgpu.compiler.plan import Role
from dmlgpu.runtime.wgpu import GpuBackend
from dmlgpu.tensors.session import session_of
from tests.eager_functions import floats


@pytest.fixture(scope="module")
def plain(backend: GpuBackend) -> Device:
    """A device on each adapter."""
    return Device.from_backend(backend)


def ten_calls(x: Any) -> Any:
    """A chain of ten element-wise calls with numbers of their own, more than a kernel can bind one by one."""
    x = abs(x * 1.5 + 0.25) - 2
    x = -(x * 0.125 + 3)
    return ((x - 7) / 4 + 5) * 6


FUNCTIONS: dict[str, tuple[int, Callable[[Any], Any]]] = {
    "ten element-wise calls": (1, ten_calls),
    "views": (1, lambda x: (x[1:, 3:9].T * 2)[2:, ::2] + x[0, 5:9].reshape(4, 1)),
    "a product": (1, lambda x: abs(x @ x.T * 0.5 + 1)),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_match_numpy_in_few_kernels(name: str, plain: Device) -> None:
    most, function = FUNCTIONS[name]
    array, compiled = floats(12, 16), dmlgpu.compile(function)
    x = Tensor(array, device=plain)
    np.testing.assert_allclose(compiled(x).numpy(), function(array), rtol=2e-5, atol=2e-5)
    program = compiled.operator(x).program
    assert program is not None and len(program.kernels) == most


def test_numbers_of_several_types_take_no_binding(plain: Device) -> None:
    array = np.arange(-6, 6, dtype=np.int32).reshape(3, 4)

    @dmlgpu.compile
    def function(x: Tensor) -> Tensor:
        return ops.where((x + 3) * 5 > 2, x.astype("float32") * 1.5 + 2, 7.0) + (x.astype("int8") + 9).astype("float32")

    x = Tensor(array, device=plain)
    expected = np.where((array + 3) * 5 > 2, array * np.float32(1.5) + 2, 7) + (array + 9)
    assert np.array_equal(function(x).numpy(), expected)
    program = function.operator(x).program
    assert program is not None
    bound = [[slot.role for slot in kernel.slots].count(Role.CONSTANT) for kernel in program.kernels]
    assert sum(bound) == 0


def test_arguments_may_begin_anywhere(plain: Device) -> None:
    array = floats(5, 7)
    x = Tensor(array, device=plain)
    compiled = dmlgpu.compile(lambda a: (a * 2, a[1:]))
    for row in (0, 3):
        for column in (0, 5):
            doubled, view = compiled(x[row:, column:])
            assert np.array_equal(doubled.numpy(), array[row:, column:] * 2)
            assert np.array_equal(view.numpy(), array[row + 1 :, column:]) and view.buffer is x.buffer


def test_a_loop_of_calls_allocates_nothing(fresh: GpuBackend) -> None:
    device = Device.from_backend(fresh)
    x = Tensor(floats(16, 24), device=device)
    compiled = dmlgpu.compile(lambda a: abs(a @ a.T) - a[:, :1])
    session = session_of(device)
    for _ in range(3):
        compiled(x)
    before = session.pool.allocations, session.bindings
    for _ in range(10):
        compiled(x)
    assert (session.pool.allocations, session.bindings) == before


def test_kernels_are_bound_again_only_if_their_memory_changed(plain: Device) -> None:
    function = dmlgpu.compile(lambda x: (ops.softmax(x @ x.T), ops.sum(x, axis=0)))
    array = floats(12, 16)
    x = Tensor(array, device=plain)
    results = [function(x)]
    executable: Any = function.operator(x)._executable
    original, labels = executable._bind, list[str]()

    def counting(operator: str, kernel: Any, *args: Any) -> Any:
        labels.append(kernel.label)
        return original(operator, kernel, *args)

    executable._bind = counting
    results[0] = (None, results[0][1])  # the memory of the sums is taken, that of the softmax is not
    softmax, sums = function(x)
    count = len(executable.program.kernels)
    assert 0 < len(labels) < count
    np.testing.assert_allclose(softmax.numpy(), ops.softmax(array @ array.T), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(sums.numpy(), array.sum(axis=0), rtol=2e-5, atol=2e-5)
