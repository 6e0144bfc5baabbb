"""``ops`` and ``array`` never answer one call differently: every name that both have, on every dtype."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dmlgpu
import dmlgpu.array as xp
from dmlgpu import DmlError, Tensor, ops

SHARED = sorted(name for name in ops.__all__ if hasattr(xp, name))

CREATING = {"arange", "empty", "eye", "full", "linspace", "ones", "zeros"}
"""Functions of ``ops`` itself."""

FLOATS = np.array([[1.5, -0.0, np.nan, np.inf], [-np.inf, 2.5, -3, 0.5], [4, 4, -2.5, 0]], np.float32)
ARRAYS = {
    "float32": FLOATS,
    "float16": np.nan_to_num(FLOATS, posinf=3, neginf=-3).astype(np.float16),
    "int8": np.array([[100, 100, -5, 0], [1, 2, 3, 4], [-128, 127, 0, 9]], np.int8),
    "uint8": np.array([[200, 100, 5, 0], [1, 2, 3, 4], [255, 7, 0, 9]], np.uint8),
    "int32": np.array([[2**30, 2**30, 2**30, -7], [1, 2, 3, 4], [-(2**31), 5, 0, 9]], np.int32),
    "uint32": np.array([[2**31, 2**31, 1, 7], [1, 2, 3, 4], [2**32 - 1, 5, 0, 9]], np.uint32),
    "int64": np.array([[2**40, 3, -2, 0], [1, 2, 3, 4], [-(2**63), 5, 0, 9]], np.int64),
    "bool": np.array([[True, False, True, True], [False] * 4, [True] * 4]),
}

ARGUMENTS: dict[str, Any] = {
    "broadcast_to": ((2, 3, 4),),
    "expand_dims": (0,),
    "full_like": (1,),
    "moveaxis": (0, 1),
    "repeat": (2,),
    "reshape": ((4, 3),),
    "roll": (1,),
    "tile": ((2, 1),),
}

ONLY_OPS = {
    "must be of a type of kind": "NumPy orders booleans; the standard does not",
    "dtype must not be float64": "Tensors can hold float64; the standard's functions compute every dtype they take",
}
"""What ``ops`` answers and ``array`` rejects, with the reason. Nothing is answered by ``array`` alone."""


@pytest.fixture(autouse=True)
def on_numpy() -> Iterator[None]:
    """Tensors are computed on the adapter ``numpy``."""
    with dmlgpu.device("numpy"):
        yield


def calls(name: str, array: Any) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Arguments of the function on a tensor."""
    x, parameters = Tensor(array), inspect.signature(getattr(xp, name)).parameters
    mask, places = Tensor(ARRAYS["bool"]), Tensor(np.array([0, 2, -1], np.int8))
    special: dict[str, list[tuple[Any, ...]]] = {
        "astype": [(x, dtype) for dtype in ("int32", "bool", "float16", "float64")],
        "clip": [(x, 1, 3)],
        "concat": [([x, x],), ([x, Tensor(ARRAYS["int64"])],)],
        "matmul": [(x, x.T)],
        "meshgrid": [(x[0], x[:, 0])],
        "searchsorted": [(Tensor(np.sort(array[1])), x)],
        "squeeze": [(x[:1], 0), (x, 0)],
        "stack": [([x, x],), ([x, Tensor(ARRAYS["int64"])],)],
        "where": [(mask, x, x), (mask, x, 1), (x, x, x)],
    }
    if name in special:
        yield from ((arguments, {}) for arguments in special[name])
    elif name.startswith("take"):
        yield (x, places if name == "take" else places.reshape(1, 3)), {"axis": 1}
    elif name in ARGUMENTS:
        yield (x, *ARGUMENTS[name]), {}
    elif "x2" in parameters:
        yield from (((x, Tensor(other)), {}) for other in ARRAYS.values())
        yield from (((x, 2), {}), ((x, 2.5), {}), ((x, True), {}), ((2, x), {}), ((x, x[:2]), {}))
    else:
        yield (x,), {}
        if "axis" in parameters:
            yield from (((x,), {"axis": axis}) for axis in (0, -1, 5))
            yield from (((x[:0],), {"axis": axis}) for axis in (0, 1))
        if "keepdims" in parameters:
            yield from (((x,), {"axis": 1, "keepdims": True}), ((x[:1],), {"axis": 0}), ((x[0, 0],), {}))
        if "dtype" in parameters:
            yield from (((x,), {"dtype": dtype}) for dtype in ("int8", "float32", "float64"))


def answer(function: Any, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
    """The tensors that a call returns, or its error."""
    try:
        result = function(*arguments, **keywords)
    except (DmlError, TypeError) as error:
        return error
    return list(result) if isinstance(result, tuple | list) else [result]


@pytest.mark.parametrize("name", [name for name in SHARED if name not in CREATING])
def test_both_answer_alike(name: str) -> None:
    answered = 0
    for array in ARRAYS.values():
        for arguments, keywords in calls(name, array):
            ours, standard = (answer(getattr(namespace, name), arguments, keywords) for namespace in (ops, xp))
            operands = [x.type_name if isinstance(x, Tensor) else x for x in arguments]
            case = f"{name}{operands} {keywords}: {ours} {standard}"
            if isinstance(ours, Exception):
                assert isinstance(standard, Exception), case
                continue
            if isinstance(standard, Exception):
                assert any(text in str(standard) for text in ONLY_OPS), case
                continue
            answered += 1
            for result, expected in zip(ours, standard, strict=True):
                assert (result.dtype, result.shape) == (expected.dtype, expected.shape), case
                np.testing.assert_array_equal(result.numpy(), expected.numpy(), case)
    assert answered


@pytest.mark.parametrize("name", ["negative", "sign"])
def test_both_reject_with_the_same_message(name: str) -> None:
    ours, standard = (answer(getattr(namespace, name), (Tensor(ARRAYS["bool"]),), {}) for namespace in (ops, xp))
    assert str(ours) == str(standard)
    assert str(ours) == (
        f"{name}: x must be of a type of kind integer or floating-point, got BOOL; x.astype('int64') converts it"
    )


def test_functions_that_create_are_the_same() -> None:
    assert all(getattr(ops, name) is getattr(xp, name) for name in CREATING)


@pytest.mark.parametrize("module", [dmlgpu, ops, xp, dmlgpu.random])
def test_dir_is_the_public_surface(module: Any) -> None:
    assert {name for name in dir(module) if not name.startswith("__")} == {
        name for name in module.__all__ if not name.startswith("__")
    }
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib", "math", "np"} & set(dir(module))
