"""Functions that sort, search or select an order agree with NumPy on NaN, infinities, zeros of both signs and axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import InvalidArgument, Tensor, ops

SPECIAL = [np.nan, 0.0, -0.0, np.inf, -np.inf, 1.5, -1.5, np.nan, 6e-8, 65504.0]
"""Values of float16 and float32 whose order is easily wrong."""

REDUCTIONS = "sum prod max min mean var std any all count_nonzero argmax argmin sort argsort flip"

DTYPES = (np.float32, np.float16, np.int8, np.uint8, np.int32, np.int64, np.uint64, bool)

SHAPES = ((7,), (3, 4), (2, 3, 5), (1,), (0,), (3, 0))


@pytest.fixture(autouse=True)
def _numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


def draw(rng: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Return values with ties; of floats, the special ones."""
    if np.dtype(dtype).kind == "f":
        return rng.choice(SPECIAL, shape).astype(dtype)
    return rng.integers(0, 4, shape).astype(dtype)


def arrays() -> Iterator[tuple[np.ndarray[Any, Any], Tensor]]:
    """Yield arrays and tensors of the same elements: packed, transposed, and every second element."""
    rng = np.random.default_rng(0)
    for dtype in DTYPES:
        for shape in SHAPES:
            array = draw(rng, dtype, shape)
            yield array, Tensor(array)
            yield array.T, Tensor(array).T
            wide = draw(rng, dtype, (*shape[:-1], 2 * shape[-1]))
            yield wide[..., ::2], Tensor(wide)[..., ::2]


def check(name: str, result: Any, expected: Any, array: Any) -> None:
    """Compare values to the sign of zero."""
    values, expected = np.asarray(result), np.asarray(expected)
    assert values.shape == expected.shape, f"{name} of {array!r}: {values.shape}, NumPy {expected.shape}"
    np.testing.assert_array_equal(values, expected, f"{name} of {array!r}")
    if expected.dtype.kind == "f":
        is_number = ~np.isnan(expected)
        signs = np.signbit(values)[is_number], np.signbit(expected)[is_number]
        np.testing.assert_array_equal(*signs, f"signs of {name} of {array!r}")


@pytest.mark.slow
def test_sorting() -> None:
    for array, x in arrays():
        for axis in (None, *range(-array.ndim, array.ndim)):
            check(f"sort, axis {axis}", ops.sort(x, axis), np.sort(array, axis, kind="stable"), array)
            check(f"argsort, axis {axis}", ops.argsort(x, axis), np.argsort(array, axis, kind="stable"), array)
            assert ops.sort(x, axis).dtype == array.dtype
            if axis is not None and array.dtype != bool:
                check(f"xp.sort, axis {axis}", xp.sort(x, axis=axis), np.sort(array, axis, kind="stable"), array)
    assert ops.sort(Tensor(2.5), axis=None).tolist() == [2.5]
    for function in (ops.sort, ops.argsort):
        with pytest.raises(InvalidArgument, match="axis must be absent for a scalar"):
            function(Tensor(2.5))


@pytest.mark.slow
def test_descending_orders_begin_with_nan() -> None:
    """As in PyTorch, whose topk and descending sort count NaN as the greatest; equal elements keep their order."""
    for array, x in arrays():
        if not array.size or array.dtype == bool or array.dtype.kind == "u":
            continue
        wide = array.astype(np.float64) if array.dtype.kind == "f" else array
        places = np.lexsort((-wide, ~np.isnan(wide)), axis=-1)
        check("descending argsort", ops.argsort(x, descending=True), places, array)
        check("descending sort", ops.sort(x, descending=True), np.take_along_axis(array, places, -1), array)
        values, indices = ops.topk(x, 1)
        check("topk", values, np.take_along_axis(array, places[..., :1], -1), array)
        check("indices of topk", indices, places[..., :1], array)
        places = np.argsort(array, -1, kind="stable")
        check(
            "smallest topk", ops.topk(x, 1, largest=False).values, np.take_along_axis(array, places[..., :1], -1), array
        )


@pytest.mark.slow
def test_searching() -> None:
    rng = np.random.default_rng(1)
    for dtype in DTYPES[:-1]:
        for count in (0, 1, 7):
            row, values = np.sort(draw(rng, dtype, (count,))), draw(rng, dtype, (3, 5))
            shuffled = rng.permutation(row)
            sorter = np.argsort(shuffled, kind="stable")
            for side in ("left", "right"):
                expected = np.searchsorted(row, values, side)
                check(f"searchsorted {side}", ops.searchsorted(Tensor(row), Tensor(values), side), expected, row)
                check("strided", ops.searchsorted(Tensor(row[::-1])[::-1], Tensor(values.T).T, side), expected, row)
                check("xp.searchsorted", xp.searchsorted(Tensor(row), Tensor(values), side=side), expected, row)
                check("with a sorter", ops.searchsorted(shuffled, values, side, sorter), expected, row)
            compiled = dmlgpu.compile(lambda a, b: ops.searchsorted(a, b, "right"))
            check("compiled", compiled(Tensor(row), Tensor(values)), np.searchsorted(row, values, "right"), row)
    assert ops.searchsorted(np.array([1, np.nan], np.float32), np.array(np.nan, np.float32)) == 1


@pytest.mark.slow
def test_unique_elements() -> None:
    for array, x in arrays():
        for equal_nan in (False, True):
            results = ops.unique(x, True, True, True, equal_nan)
            expected = np.unique(array, True, True, True, equal_nan=equal_nan)
            for name, result, part in zip(("values", "index", "inverse", "counts"), results, expected, strict=True):
                np.testing.assert_array_equal(result.numpy(), part, f"{name} of {array!r}, equal_nan={equal_nan}")
    with pytest.raises(InvalidArgument, match="unique: equal_nan must be a bool"):
        ops.unique([1.0], equal_nan=1)  # type: ignore[arg-type]


@pytest.mark.slow
def test_extremes_propagate_nan() -> None:
    for array, x in arrays():
        for axis in (None, *range(array.ndim)):
            if not array.size or (axis is not None and not array.shape[axis]):
                continue
            for name in ("max", "min"):
                result, expected = getattr(ops, name)(x, axis).numpy(), getattr(np, name)(array, axis)
                np.testing.assert_array_equal(result, expected, f"{name} of {array!r}, axis {axis}")
            for name in ("argmax", "argmin"):
                if array.dtype != bool:
                    check(f"{name}, axis {axis}", getattr(ops, name)(x, axis), getattr(np, name)(array, axis), array)


def test_axis_none_flattens() -> None:
    rng = np.random.default_rng(2)
    array = rng.standard_normal((2, 3, 4)).astype(np.float32)
    for values, x in ((array, Tensor(array)), (array.T, Tensor(array).T), (array[:, ::2], Tensor(array)[:, ::2])):
        for name in REDUCTIONS.split():
            np.testing.assert_allclose(
                getattr(ops, name)(x, axis=None).numpy(), getattr(np, name)(values, axis=None), 1e-4, 1e-6, err_msg=name
            )
        for name in ("cumsum", "cumprod"):
            result = getattr(ops, name)(x, axis=None).numpy()
            np.testing.assert_allclose(result, getattr(np, name)(values, axis=None), 1e-4, 1e-6, err_msg=name)
        places = rng.integers(0, values.size, 5)
        cases = {
            "take": (ops.take(x, places, axis=None), np.take(values, places, axis=None)),
            "take_along_axis": (
                ops.take_along_axis(x, places, axis=None),
                np.take_along_axis(values, places, axis=None),
            ),
            "roll": (ops.roll(x, 5, axis=None), np.roll(values, 5, axis=None)),
            "repeat": (xp.repeat(x, 2, axis=None), np.repeat(values, 2, axis=None)),
            "squeeze": (ops.squeeze(x[:1], axis=None), np.squeeze(values[:1], axis=None)),
            "concatenate": (ops.concatenate([x, x[0]], axis=None), np.concatenate([values, values[0]], axis=None)),
            "xp.concat": (xp.concat([x, x[0]], axis=None), np.concatenate([values, values[0]], axis=None)),
            "cat": (ops.cat([values, values[0]], axis=None), np.concatenate([values, values[0]], axis=None)),
        }
        for name, (result, expected) in cases.items():
            np.testing.assert_array_equal(np.asarray(result), expected, name)


def test_compiled_orders() -> None:
    array = draw(np.random.default_rng(3), np.float32, (4, 6))

    @dmlgpu.compile
    def orders(x: Tensor) -> Any:
        return ops.sort(x, axis=None), ops.argsort(x, axis=0), ops.concatenate([x, x[0]], axis=None)

    results = orders(Tensor(array))
    expected = np.sort(array, None, "stable"), np.argsort(array, 0, "stable"), np.concatenate([array, array[0]], None)
    for result, values in zip(results, expected, strict=True):
        check("compiled", result, values, array)
