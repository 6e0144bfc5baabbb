"""Rejections of the array API's namespace: one sentence in the words of the function that was called."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dmlgpu.array as xp
from dmlgpu import Device, DmlError, InvalidArgument, NotSupported
from dmlgpu.runtime.device import as_device
from tests.unit.device_objects import raises
from tests.wrong_arguments import HUGE, Hostile, HostileSequence


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The adapter ``numpy``, by default."""
    default = as_device("test", "numpy")
    monkeypatch.setattr("dmlgpu.runtime.device._Default.by_environment", default)
    return default


def refusals() -> dict[str, Callable[[], Any]]:
    x, whole, truth = xp.ones((2, 3)), xp.arange(4), xp.asarray([True, False])
    return {
        "add: sizes must be equal or 1 to broadcast, got [2, 3] of x1 and [4] of x2": lambda: xp.add(x, xp.ones(4)),
        "subtract: a and b must not both be masks; a ^ b (logical_xor) is where they differ, a.astype('int64') makes "
        "integers": lambda: xp.subtract(truth, truth),
        "add: a number for INT8 must be an integer between -128 and 127, got 300; convert the tensor with "
        "astype('int64')": lambda: xp.add(whole.astype("int8"), 300),
        "pow: exponents of integers must not be negative, got -1; convert the base with astype('float32')": lambda: (
            xp.pow(whole, -1)
        ),
        "add: x2 must be a Tensor, got 3 of type int; asarray makes one of numbers": lambda: xp.add(1, 3),
        "add: x2 must be a Tensor, got array([1]) of type ndarray; asarray makes one of numbers": (
            lambda: xp.add(whole, np.array([1]))
        ),
        "maximum: operands must have a common type, got INT64 of x1 and UINT64 of x2; convert one of them, "
        "such as x2.astype('int64')": (lambda: xp.maximum(whole, whole.astype("uint64"))),
        "bitwise_and: a and b must be of integers, got FLOAT32; astype('int32') converts values, "
        "reinterpret(sizes, dtype='uint32') reads bits": lambda: xp.bitwise_and(whole, 1.5),
        "sum: axis must be an integer between -2 and 1, for 2 dimensions, got 2": lambda: xp.sum(x, axis=2),
        "sum: axis must name each axis once, got [0, -2]": lambda: xp.sum(x, axis=(0, -2)),
        "max: x must have at least one element along axis, got sizes [0, 3]": lambda: xp.max(x[:0], axis=0),
        "argmin: x must have at least one element along axis, got [0]": lambda: xp.argmin(whole[:0]),
        "matmul: the last size of a must equal the first of b's matrices, got [2, 3], [2, 3]": lambda: xp.matmul(x, x),
        "reshape: sizes must hold the tensor's 6 elements, got (4,)": lambda: xp.reshape(x, (4,)),
        "reshape: sizes must have at most 8 dimensions, got 9": lambda: xp.reshape(x, (1,) * 7 + (2, 3)),
        "expand_dims: axis must be an integer between -3 and 2, for 3 dimensions, got 3": lambda: xp.expand_dims(
            x, axis=3
        ),
        "zeros: shape must have at most 2^32 - 1 elements, got [1099511627776], 1099511627776 elements": (
            lambda: xp.zeros(2**40)
        ),
        "zeros: shape must be at least 0 each, got [-1]": lambda: xp.zeros(-1),
        "tile: at most 2^32 - 1 elements must result, got 6597069766656": lambda: xp.tile(x, (2**40,)),
        "asarray: obj must be of real numbers, got array([None], dtype=object) of type ndarray": (
            lambda: xp.asarray(np.array([None]))
        ),
        "asarray: copy must not be False: list is copied to the device": lambda: xp.asarray([1], copy=False),
        "concat: arrays must have equal sizes but for axis 0, got [2, 3], [2, 2]": lambda: xp.concat([x, x[:, :2]]),
        "concat: arrays must be a list of Tensors, at least one, got []": lambda: xp.concat([]),
        "where: condition must be of a type of kind boolean, got FLOAT32; "
        "condition.astype('bool') converts it": lambda: xp.where(x, x, x),
        "take: indices must be of a type of kind integer, got FLOAT32; indices.astype('int64') converts it": lambda: (
            xp.take(whole, x)
        ),
        "searchsorted: side must be 'left' or 'right', got 'middle'": lambda: xp.searchsorted(
            whole, whole, side="middle"
        ),
        "arange: step must not be 0": lambda: xp.arange(3, 4, 0),
        "full: fill_value: a number for INT8 must be an integer between -128 and 127, got 300": (
            lambda: xp.full(2, 300, dtype=xp.int8)
        ),
        "tril: x must have at least 2 dimensions, got 1": lambda: xp.tril(whole),
        "result_type: types must have a common one, got uint64, int64; astype converts": (
            lambda: xp.result_type(xp.uint64, whole)
        ),
        "isdtype: kind must be one of real floating, complex floating, signed integer, unsigned integer, bool, "
        "integral, numeric or a type, got 'text'": lambda: xp.isdtype(xp.int8, "text"),
        "Tensor.__array_namespace__: api_version must be one of 2021.12, 2022.12, 2023.12, 2024.12, got '1999.12'": (
            lambda: x.__array_namespace__(api_version="1999.12")
        ),
        "a += b: the result must have the type and sizes of a, INT64 [4], got INT64 [2, 4]; write a = a + b": (
            lambda: operator.iadd(whole, xp.zeros((2, 4), dtype=xp.int64))
        ),
        "a *= b: the result must have the type and sizes of a, INT8 [4], got INT64 [4]; write a = a * b": (
            lambda: operator.imul(whole.astype("int8"), whole)
        ),
        "Tensor.to_device: stream must be None, got 1": lambda: x.to_device("numpy", stream=1),  # type: ignore[arg-type]
        "Tensor[...] = value: value must be of integers for INT64, got FLOAT32; "
        "value.astype('int64') converts it": lambda: whole.__setitem__(0, x[0, 0]),
        "Tensor[...] = value: a view must not be assigned to, since what it views would stay as it is; "
        "x.copy() makes a tensor that can be": lambda: x[0].__setitem__(0, 1.0),
    }


def test_rejections_name_the_called_function() -> None:
    for text, call in refusals().items():
        with raises(InvalidArgument, text):
            call()


def test_types_that_adapters_cannot_compute() -> None:
    for dtype in (xp.float64, "float64", np.float64, xp.complex64, "complex128"):
        name = np.dtype(dtype).name
        text = (
            f"must not be {name}, which adapters cannot compute; float32 is the widest floating-point type: "
            "dtype='float32', or x.astype('float32')"
        )
        for function in (xp.zeros, xp.ones, xp.empty):
            with raises(NotSupported, f"{function.__name__}: dtype {text}"):
                function(2, dtype=dtype)
        with raises(NotSupported, f"astype: dtype {text}"):
            xp.astype(xp.arange(2), dtype)
        with raises(NotSupported, f"asarray: dtype {text}"):
            xp.asarray([1, 2], dtype=dtype)
    with raises(NotSupported, "asarray: obj must not be of complex numbers, which adapters cannot compute"):
        xp.asarray([1j])
    assert xp.asarray(np.ones(2), dtype=xp.float32).dtype == xp.float32
    assert not {"float64", "complex64", "complex128"} & set(xp.__array_namespace_info__().dtypes())


def test_masks_of_other_sizes() -> None:
    message = r"^Tensor\[...\]: a mask must have the sizes \[2\] of the dimensions it selects from, got \[3\]$"
    for mask in (np.ones(3, bool), xp.ones(3, dtype=xp.bool), (np.ones(3, bool), slice(None))):
        with pytest.raises(IndexError, match=message) as caught:
            xp.ones((2, 3))[mask]
        assert isinstance(caught.value, InvalidArgument)


def test_mixed_devices() -> None:
    other = xp.ones(2, device=Device("numpy"))
    with pytest.raises(
        InvalidArgument, match=r"^add: x2 must be on the device of x1, .* got one on .*; to_device copies it$"
    ):
        xp.add(xp.ones(2), other)
    with pytest.raises(InvalidArgument, match=r"^where: "):
        xp.where(xp.asarray([True, False]), xp.ones(2), other)


def test_operators_without_a_meaning_for_no_elements() -> None:
    from dmlgpu import ops

    with raises(
        InvalidArgument,
        "layer_norm: operands must have at least one element each for MEAN_VARIANCE_NORMALIZATION2; dmlgpu.array has "
        "functions for arrays without elements",
    ):
        ops.layer_norm(xp.ones((0, 3)))


WRONG = (
    None,
    "text",
    b"x",
    [],
    [1],
    {},
    1.5,
    1j,
    True,
    -1,
    HUGE,
    object(),
    Hostile(),
    HostileSequence(),
    np.array([None]),
)
FUNCTIONS = sorted(
    name
    for name, function in vars(xp).items()
    if inspect.isfunction(function) and not name.startswith("_") and function.__module__.startswith("dmlgpu.array")
)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_wrong_arguments(name: str) -> None:
    """Any argument raises only exceptions of dmlgpu, which name the function."""
    function = getattr(xp, name)
    x = xp.ones((2, 3))
    for parameter in inspect.signature(function).parameters.values():
        for wrong in WRONG:
            good = [x] * sum(
                other.default is other.empty and other.kind is other.POSITIONAL_ONLY
                for other in inspect.signature(function).parameters.values()
            )
            options: dict[str, Any] = {}
            if parameter.kind is parameter.POSITIONAL_ONLY or parameter.kind is parameter.VAR_POSITIONAL:
                place = list(inspect.signature(function).parameters).index(parameter.name)
                good[place : place + 1] = [wrong]
            else:
                options[parameter.name] = wrong
            try:
                function(*good, **options)
            except DmlError as error:
                assert str(error).startswith((f"{name}: ", "no adapter")), error
            except TypeError as error:
                assert "argument" in str(error), error
