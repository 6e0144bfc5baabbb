"""The array API's namespace against NumPy's: values, types, sizes."""

from __future__ import annotations

import operator
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu.array as xp
from dmlgpu import Device, Tensor
from dmlgpu.runtime.device import as_device
from tests.unit.array import array_functions as functions
from tests.unit.array.array_functions import ARRAY, INDICES, SAME, SPECIAL, TYPES


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    """The adapter ``numpy``, by default."""
    default = as_device("test", "numpy")
    monkeypatch.setattr("dmlgpu.runtime.device._Default.by_environment", default)
    return default


def check(result: Any, expected: Any) -> None:
    if isinstance(expected, tuple):
        assert isinstance(result, tuple) and len(result) == len(expected)
        for part, other in zip(result, expected, strict=True):
            check(part, other)
        return
    if not isinstance(expected, np.ndarray | np.generic):
        assert result == expected
        return
    assert isinstance(result, Tensor)
    assert result.dtype == expected.dtype and result.shape == expected.shape
    if result.dtype.kind == "f":
        np.testing.assert_allclose(result.numpy(), expected, rtol=3e-6, atol=1e-6)
        numbers = ~np.isnan(expected)
        assert np.array_equal(np.signbit(result.numpy())[numbers], np.signbit(expected)[numbers])
    else:
        assert np.array_equal(result.numpy(), expected)


@pytest.mark.parametrize("name", SAME)
def test_as_numpy_does(name: str) -> None:
    with np.errstate(all="ignore"):
        expected = SAME[name](np, np.asarray)
    check(SAME[name](xp, xp.asarray), expected)


@pytest.mark.parametrize("name", (functions.FLOATING + " " + functions.NUMERIC).split())
def test_functions_of_one_array(name: str) -> None:
    with np.errstate(all="ignore"):
        check(getattr(xp, name)(xp.asarray(SPECIAL)), getattr(np, name)(SPECIAL))
        if name in functions.NUMERIC.split() and name not in ("imag", "real"):
            for dtype in functions.INTEGERS:
                array, _ = functions.whole(dtype)
                expected = getattr(np, name)(array)
                check(getattr(xp, name)(xp.asarray(array)), expected)
    empty = np.empty((2, 0), np.float32)
    check(getattr(xp, name)(xp.asarray(empty)), getattr(np, name)(empty))


@pytest.mark.parametrize("name", (functions.FLOATING_PAIRS + " " + functions.NUMERIC_PAIRS).split())
def test_functions_of_two_arrays_of_floats(name: str) -> None:
    a, b = np.meshgrid(SPECIAL, SPECIAL)
    first, second = xp.asarray(a), xp.asarray(b)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(a, b)
        result = getattr(xp, name)(first, second)
        if name == "floor_divide":  # of infinities the standard leaves open; long quotients are rounded before
            same = np.isfinite(a) & np.isfinite(b) & ~(abs(expected) > 1000)
            result, expected = Tensor(np.where(same, result.numpy(), 0)), np.where(same, expected, np.float32(0))
        if name in ("maximum", "minimum"):  # of 0 and -0 either
            expected, result = expected + 0, result + 0
        check(result, expected)
        finite = SPECIAL[np.isfinite(SPECIAL)]
        check(getattr(xp, name)(xp.asarray(finite), 2.0), getattr(np, name)(finite, np.float32(2)))


@pytest.mark.parametrize("name", (functions.NUMERIC_PAIRS + " " + functions.WHOLE_PAIRS).split())
def test_functions_of_two_arrays_of_integers(name: str) -> None:
    for dtype in functions.INTEGERS:
        a, b = functions.whole(dtype)
        a, b = (b % 8, a % 5) if name == "pow" else (a, b)
        with np.errstate(all="ignore"):
            check(getattr(xp, name)(xp.asarray(a), xp.asarray(b)), getattr(np, name)(a, b))
            check(getattr(xp, name)(xp.asarray(a), 3), getattr(np, name)(a, np.array(3, dtype)))
    mixed = np.array([[-3], [4]], np.int8), np.array([1, 2, 7], np.uint8)
    check(getattr(xp, name)(*map(xp.asarray, mixed)), getattr(np, name)(*mixed)) if name != "pow" else None


@pytest.mark.parametrize("name", functions.TRUTH_PAIRS.split())
def test_functions_of_booleans(name: str) -> None:
    a, b = np.meshgrid([True, False], [True, False])
    check(getattr(xp, name)(xp.asarray(a), xp.asarray(b)), getattr(np, name)(a, b))
    check(~xp.asarray(a), ~a)
    check(xp.logical_not(xp.asarray(a)), ~a)


def test_shifts_by_all_bits_and_more() -> None:
    for dtype in functions.INTEGERS:
        bits = np.iinfo(dtype).bits
        array = np.array([-8 if dtype.startswith("i") else 8, 7], dtype)
        by = np.array([bits, bits + 1], dtype)
        check(xp.asarray(array) << xp.asarray(by), np.zeros(2, dtype))
        check(xp.asarray(array) >> xp.asarray(by), np.where(array < 0, -1, 0).astype(dtype))


@pytest.mark.parametrize("name", INDICES)
def test_indexing(name: str) -> None:
    index = INDICES[name]

    def moved(index: Any) -> Any:
        return xp.asarray(index) if isinstance(index, np.ndarray) else index

    moved_index = tuple(map(moved, index)) if isinstance(index, tuple) else moved(index)
    check(xp.asarray(ARRAY)[moved_index], ARRAY[index])
    check(xp.asarray(ARRAY)[index], ARRAY[index])


@pytest.mark.parametrize("name", INDICES)
def test_assignment(name: str) -> None:
    index = INDICES[name]
    for dtype in ("int64", "float32", "bool"):
        expected = ARRAY.astype(dtype)
        x = xp.asarray(expected)
        before, view = x.copy(), x[...]
        value = np.arange(ARRAY[index].size).reshape(ARRAY[index].shape).astype(dtype)
        for item in (value, value.dtype.type(1)):
            x[index] = xp.asarray(item)
            expected[index] = item
            check(x, expected)
        check(view, before.numpy())
    x = xp.asarray(ARRAY)
    x[index] = 7
    expected = ARRAY.copy()
    expected[index] = 7
    check(x, expected)


def test_booleans_stay_booleans() -> None:
    array = np.array([[True, False, True], [False, False, True]])
    x = xp.asarray(array)
    assert x.dtype == xp.bool and x.data_type.name == "UINT8" and repr(x).startswith("Tensor(BOOL [2, 3] ")
    for function in (
        lambda a: a.T,
        lambda a: a[:, ::-1],
        lambda a: a[1],
        lambda a: a.reshape(-1)[1:],
        lambda a: a[np.array([1, 0])],
        lambda a: a == True,  # noqa: E712
        lambda a: a | a[0],
    ):
        check(function(x), np.asarray(function(array)))
    assert x.tolist() == array.tolist() and xp.asarray([0.5, 0.0]).astype(bool).tolist() == [True, False]
    check(x.astype("uint8"), array.astype(np.uint8))
    check(xp.asarray(np.array([0, 3, 255], np.uint8)).astype(bool), np.array([False, True, True]))


def test_namespace_of_a_tensor(device: Device) -> None:
    x = xp.asarray([1.0, 2.0])
    for version in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
        assert x.__array_namespace__(api_version=version) is xp
    assert x.device is device and x.to_device("numpy") is x and x.__dlpack_device__() == (1, 0)
    assert (complex(x[0]), float(x[1]), int(x[1]), bool(x[0])) == (1 + 0j, 2.0, 2, True)
    assert np.array_equal(np.from_dlpack(x), [1, 2]) and xp.from_dlpack(np.arange(3)).tolist() == [0, 1, 2]
    check(xp.asarray(ARRAY).mT, np.matrix_transpose(ARRAY))


def test_inspection(device: Device) -> None:
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}
    assert info.default_device() is device and device in info.devices()
    assert set(info.dtypes()) == set(TYPES)
    assert info.dtypes(kind=("real floating", "complex floating")) == {"float32": xp.float32}
    usual = {"real floating": xp.float32, "integral": xp.int64, "indexing": xp.int64}
    assert info.default_dtypes() == usual
    assert xp.asarray(1.0).dtype == usual["real floating"] and xp.asarray(1).dtype == usual["integral"]
    assert xp.argmax(xp.asarray([1, 2])).dtype == usual["indexing"]


def test_limits_of_types() -> None:
    assert (xp.finfo(xp.float32).eps, xp.finfo(xp.float16).bits) == (float(np.finfo(np.float32).eps), 16)
    assert (xp.iinfo(xp.uint64).max, xp.iinfo(xp.asarray([1])).min) == (2**64 - 1, -(2**63))


def test_the_functions_that_the_page_lists_exist() -> None:
    page = (Path(__file__).parents[3] / "docs/array-api.md").read_text(encoding="utf-8")
    _, _, table = page.partition("| functions | operators |\n|---|---|\n")
    listed = re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.partition("\n\n")[0].split("\n")))
    assert len(listed) > 25 and [name for name in listed if not hasattr(xp, name)] == []


def test_operators_in_place() -> None:
    for symbol in ("add", "sub", "mul", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift"):
        result, expected = xp.asarray(ARRAY), ARRAY.copy()
        before = result
        function = getattr(operator, f"i{symbol}")
        result, expected = function(result, 3), function(expected, 3)
        check(result, expected)
        assert before.tolist() == ARRAY.tolist()
    quotient = xp.asarray(SPECIAL[:4])
    quotient /= 2
    check(quotient, SPECIAL[:4] / np.float32(2))


def test_functions_copy_memory_that_is_assigned_to() -> None:
    """Functions that return their argument's elements return a tensor of its own."""
    x = xp.asarray([1, 2])
    for function in (xp.positive, xp.floor, xp.real, xp.abs, lambda a: xp.astype(a, xp.int64), lambda a: +a):
        result = function(x)
        result[0] = 9
        assert x.tolist() == [1, 2] and result.tolist() == [9, 2]
