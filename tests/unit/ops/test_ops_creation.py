"""Creation functions of ops against NumPy's, on devices of choice, and the same as those of array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import DataType, InvalidArgument, NotSupported, Tensor, ops
from tests.unit.device_objects import raises

F32 = np.float32


@pytest.fixture(autouse=True)
def on_numpy() -> Any:
    """Tensors are created on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


SAME: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "zeros": (lambda ops: ops.zeros((2, 3)), np.zeros((2, 3), F32)),
    "zeros of a row": (lambda ops: ops.zeros(4, dtype="int8"), np.zeros(4, np.int8)),
    "zeros of nothing": (lambda ops: ops.zeros((2, 0), dtype=bool), np.zeros((2, 0), bool)),
    "ones": (lambda ops: ops.ones((), dtype=DataType.FLOAT16), np.ones((), np.float16)),
    "ones of truth": (lambda ops: ops.ones(3, dtype=bool), np.ones(3, bool)),
    "full": (lambda ops: ops.full((2, 2), 7), np.full((2, 2), 7)),
    "full of floats": (lambda ops: ops.full(3, 0.5), np.full(3, 0.5, F32)),
    "full of truth": (lambda ops: ops.full(3, True), np.full(3, True)),
    "full of a dtype": (lambda ops: ops.full((1, 2), 200, dtype="uint8"), np.full((1, 2), 200, np.uint8)),
    "arange": (lambda ops: ops.arange(5), np.arange(5)),
    "arange between": (lambda ops: ops.arange(2, 11, 3), np.arange(2, 11, 3)),
    "arange downwards": (lambda ops: ops.arange(5, -2, -2), np.arange(5, -2, -2)),
    "arange of floats": (lambda ops: ops.arange(0, 1, 0.25), np.arange(0, 1, 0.25, F32)),
    "arange of nothing": (lambda ops: ops.arange(3, 1), np.arange(3, 1)),
    "linspace": (lambda ops: ops.linspace(-1, 2, 7), np.linspace(-1, 2, 7, dtype=F32)),
    "linspace open": (lambda ops: ops.linspace(0, 1, 4, endpoint=False), np.linspace(0, 1, 4, False, dtype=F32)),
    "eye": (lambda ops: ops.eye(3), np.eye(3, dtype=F32)),
    "eye shifted": (lambda ops: ops.eye(3, 4, k=-1, dtype="int32"), np.eye(3, 4, -1, np.int32)),
    "zeros_like": (lambda ops: ops.zeros_like(Tensor(np.ones((2, 3), np.int16))), np.zeros((2, 3), np.int16)),
    "ones_like": (lambda ops: ops.ones_like(Tensor(np.ones(3) > 0)), np.ones(3, bool)),
    "full_like": (lambda ops: ops.full_like(Tensor(np.ones((2, 0))), 2, dtype="int8"), np.full((2, 0), 2, np.int8)),
}


@pytest.mark.parametrize("name", SAME)
@pytest.mark.parametrize("namespace", [ops, xp])
def test_as_numpy_does(name: str, namespace: Any) -> None:
    create, expected = SAME[name]
    result = create(namespace)
    assert isinstance(result, Tensor)
    assert (result.dtype, result.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, atol=1e-7)
    assert result.device.adapter.name == "numpy"


def test_positional_dtypes_as_numpy_has_them() -> None:
    assert ops.zeros(2, "int8").dtype == ops.ones(2, np.int8).dtype == ops.full(2, 1, "int8").dtype == np.int8
    assert ops.arange(0, 2, 1, "uint8").dtype == ops.linspace(0, 1, 2, True, "uint8").dtype == np.uint8
    assert ops.linspace(0, 1).shape == (50,) and ops.eye(2, 3, 1, bool).dtype == bool
    assert ops.empty(3, "uint16").dtype == np.uint16


def test_arrays_give_arrays() -> None:
    for function in (ops.zeros_like, ops.ones_like, ops.tril):
        assert isinstance(function(np.ones((2, 2), F32)), np.ndarray)
    x, y = ops.meshgrid(np.arange(3), np.arange(2))
    assert isinstance(x, np.ndarray) and isinstance(y, np.ndarray) and x.shape == (2, 3)
    with pytest.warns(dmlgpu.Float64Warning):
        assert ops.zeros_like(np.ones(3)).dtype == F32


def test_devices() -> None:
    other = dmlgpu.Device("numpy")
    assert ops.zeros(2, device=other).device is other and ops.arange(3, device=other).device is other
    x = Tensor([1.0, 2.0], device=other)
    assert ops.zeros_like(x).device is other
    assert ops.zeros_like(x, device="numpy").device is not other


def test_in_a_compiled_function() -> None:
    other = dmlgpu.Device("numpy")

    @dmlgpu.compile
    def step(x: Any) -> Any:
        like = ops.full_like(x, 3) + ops.zeros(2) + ops.arange(2, dtype="float32")
        return x * like + Tensor([1.0, 2.0]) + ops.tril(ops.ones((2, 2)))

    x = Tensor([1.0, 2.0], device=other)
    np.testing.assert_array_equal(step(x).numpy(), np.array([1, 2]) * [3, 4] + [1, 2] + np.tril(np.ones((2, 2))))
    assert step(x).device is other


def test_of_values_of_a_graph() -> None:
    graph = dmlgpu.Graph("numpy", rules="numpy")
    x = graph.input((2, 3), name="x")
    (result,) = graph.evaluate([x * ops.full_like(x, 2) + ops.ones_like(x)], [np.ones((2, 3), F32)])
    np.testing.assert_array_equal(result, np.full((2, 3), 3))


def test_rejections() -> None:
    for text, call in {
        "zeros: shape must be at least 0 each, got [-1]": lambda: ops.zeros(-1),
        "full: fill_value: a number for UINT8 must be an integer between 0 and 255, got 300": (
            lambda: ops.full(2, 300, dtype="uint8")
        ),
        "arange: step must not be 0": lambda: ops.arange(1, 2, 0),
        "linspace: num must be at least 0, got -1": lambda: ops.linspace(0, 1, -1),
        "tril: x must have at least 2 dimensions, got 1": lambda: ops.tril(np.ones(3, F32)),
        "zeros_like: x must be a Tensor or an array, got 5 of type int": lambda: ops.zeros_like(5),
    }.items():
        with raises(InvalidArgument, text):
            call()
    for function in (ops.zeros, ops.ones, ops.empty, ops.eye, ops.arange):
        with pytest.raises(
            NotSupported, match=f"{function.__name__}: dtype must not be float64, which adapters cannot"
        ):
            function(2, dtype="float64")
