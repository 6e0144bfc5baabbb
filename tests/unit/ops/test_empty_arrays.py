"""Functions of ``ops`` and ``array`` on arrays with every size 0 in turn, against NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dmlgpu import InvalidArgument, ops
from dmlgpu import array as xp

F = np.float32
SHAPES = ((0,), (0, 3), (2, 0), (2, 0, 3))
NOTHING = np.zeros(0, np.int64)
Case = tuple[str, Callable[[], Any], Callable[[], Any]]

UNARY = ["abs", "sign", "exp", "log", "sqrt", "sin", "cos", "tanh", "floor", "ceil", "square", "isnan", "isinf"]
BINARY = [
    "add",
    "subtract",
    "multiply",
    "divide",
    "floor_divide",
    "remainder",
    "maximum",
    "minimum",
    "equal",
    "less",
    "greater_equal",
]
REDUCTIONS = ["sum", "mean", "prod", "min", "max", "var", "std", "argmin", "argmax"]


def on(array: np.ndarray) -> Any:
    return xp.asarray(array, device="numpy")


def functions(shape: tuple[int, ...]) -> Iterator[Case]:
    """Yield calls of ops and of NumPy."""
    x = np.zeros(shape, F)
    run: dict[str, Any] = {"device": "numpy"}
    for name in UNARY:
        yield name, lambda name=name: getattr(ops, name)(x, **run), lambda name=name: getattr(np, name)(x)
    for name in BINARY:
        yield name, lambda name=name: getattr(ops, name)(x, x, **run), lambda name=name: getattr(np, name)(x, x)
        yield name, lambda name=name: getattr(ops, name)(x, 2.0, **run), lambda name=name: getattr(np, name)(x, F(2))
    for axis in (None, *range(len(shape))):
        for name in REDUCTIONS:
            for keepdims in (False, True):
                rest: dict[str, Any] = {"axis": axis, "keepdims": keepdims}
                yield (
                    name,
                    lambda name=name, rest=rest: getattr(ops, name)(x, **rest, **run),
                    lambda name=name, rest=rest: getattr(np, name)(x, **rest),
                )
    places = np.zeros(shape, np.int64)
    for axis in range(len(shape)):
        yield "softmax", lambda axis=axis: ops.softmax(x, axis=axis, **run), lambda: x
        yield "norm", lambda axis=axis: ops.norm(x, axis=axis, **run), lambda axis=axis: np.linalg.norm(x, axis=axis)
        yield "cumsum", lambda axis=axis: ops.cumsum(x, axis=axis, **run), lambda axis=axis: np.cumsum(x, axis)
        yield "sort", lambda axis=axis: ops.sort(x, axis=axis, **run), lambda axis=axis: np.sort(x, axis)
        yield "argsort", lambda axis=axis: ops.argsort(x, axis=axis, **run), lambda axis=axis: np.argsort(x, axis)
        yield "flip", lambda axis=axis: ops.flip(x, axis=axis, **run), lambda: x
        yield "roll", lambda axis=axis: ops.roll(x, 1, axis=axis, **run), lambda: x
        yield "split", lambda axis=axis: ops.split(x, 1, axis=axis, **run)[0], lambda: x
        yield "stack", lambda axis=axis: ops.stack([x, x], axis=axis, **run), lambda axis=axis: np.stack([x, x], axis)
        yield (
            "concatenate",
            lambda axis=axis: ops.concatenate([x, x], axis=axis, **run),
            lambda axis=axis: np.concatenate([x, x], axis),
        )
        yield (
            "take",
            lambda axis=axis: ops.take(x, NOTHING, axis=axis, **run),
            lambda axis=axis: np.take(x, NOTHING, axis),
        )
        yield "take_along_axis", lambda axis=axis: ops.take_along_axis(x, places, axis=axis, **run), lambda: x
    yield "pad", lambda: ops.pad(x, 1, value=7, **run), lambda: np.pad(x, 1, constant_values=7)
    yield "one_hot", lambda: ops.one_hot(x.astype(np.int64), 4, **run), lambda: np.zeros((*shape, 4), F)
    yield "where", lambda: ops.where(x > 0, x, x, **run), lambda: x
    yield "transpose", lambda: ops.transpose(x, **run), x.transpose
    yield "reshape", lambda: ops.reshape(x, (0, 5), **run), lambda: x.reshape(0, 5)


def array_functions(shape: tuple[int, ...]) -> Iterator[Case]:
    """Yield calls of the array namespace and of NumPy."""
    x = np.zeros(shape, F)
    a = on(x)
    for name in (*UNARY, "round", "isfinite", "unique_values", "zeros_like", "nonzero"):
        yield name, lambda name=name: getattr(xp, name)(a), lambda name=name: getattr(np, name)(x)
    for name in BINARY:
        yield name, lambda name=name: getattr(xp, name)(a, a), lambda name=name: getattr(np, name)(x, x)
    for axis in (None, *range(len(shape))):
        for name in (*REDUCTIONS, "all", "any", "count_nonzero"):
            yield (
                name,
                lambda name=name, axis=axis: getattr(xp, name)(a, axis=axis),
                lambda name=name, axis=axis: getattr(np, name)(x, axis=axis),
            )
    for axis in range(len(shape)):
        for name in ("sort", "argsort", "flip", "cumulative_sum", "cumulative_prod", "diff"):
            yield (
                name,
                lambda name=name, axis=axis: getattr(xp, name)(a, axis=axis),
                lambda name=name, axis=axis: getattr(np, name)(x, axis=axis),
            )
        yield "concat", lambda axis=axis: xp.concat([a, a], axis=axis), lambda axis=axis: np.concat([x, x], axis)
        yield "stack", lambda axis=axis: xp.stack([a, a], axis=axis), lambda axis=axis: np.stack([x, x], axis)
        yield "roll", lambda axis=axis: xp.roll(a, 1, axis=axis), lambda: x
        yield "repeat", lambda axis=axis: xp.repeat(a, 2, axis=axis), lambda axis=axis: np.repeat(x, 2, axis)


def agree(name: str, call: Callable[[], Any], oracle: Callable[[], Any]) -> None:
    with np.errstate(all="ignore"):
        try:
            expected = oracle()
        except ValueError:  # no elements of which one is the largest
            return
    results = call()
    pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
    for result, other in pairs:
        elements = result.numpy() if hasattr(result, "numpy") else np.asarray(result)
        assert elements.shape == np.shape(other), name
        np.testing.assert_array_equal(elements, other, err_msg=name)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("shape", SHAPES)
def test_functions_of_nothing(shape: tuple[int, ...]) -> None:
    for case in functions(shape):
        agree(*case)
    for case in array_functions(shape):
        agree(*case)


@pytest.mark.parametrize("sizes", [(0, 3, 2), (2, 0, 3), (2, 3, 0)])
def test_products_of_nothing(sizes: tuple[int, int, int]) -> None:
    rows, inner, columns = sizes
    a, b = np.zeros((rows, inner), F), np.zeros((inner, columns), F)
    np.testing.assert_array_equal(ops.matmul(a, b, device="numpy"), a @ b)
    np.testing.assert_array_equal(xp.matmul(on(a), on(b)).numpy(), a @ b)
    np.testing.assert_array_equal(xp.tensordot(on(a), on(b), axes=1).numpy(), a @ b)


@pytest.mark.parametrize("function", [ops.max, ops.min, ops.argmax, ops.argmin])
def test_extremes_of_nothing_are_rejected(function: Any) -> None:
    for axis in (None, 1):
        with pytest.raises(InvalidArgument, match="must have at least one element"):
            function(np.zeros((2, 0), F), axis=axis, device="numpy")


def test_parts_without_elements_must_fit() -> None:
    x, nothing = np.ones((2, 3), F), np.zeros((2, 0), F)
    np.testing.assert_array_equal(ops.concatenate([x, nothing], axis=1, device="numpy"), x)
    for first, other, rule in (
        (x, np.zeros((0, 4), F), "arrays must have equal sizes but for axis 0"),
        (x.astype(np.uint64), np.zeros((0, 3), np.int32), "operands must have a common type"),
    ):
        with pytest.raises(InvalidArgument, match=f"concatenate: {rule}"):
            ops.concatenate([first, other], axis=0, device="numpy")
