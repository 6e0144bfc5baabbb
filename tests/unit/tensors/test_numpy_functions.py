"""Every public function of NumPy, called on a Tensor: computed on the device, or rejected with what to call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dmlgpu
from dmlgpu import DmlError, Tensor, ops
from dmlgpu.tensors import numpy_functions
from dmlgpu.tensors.numpy_functions import UnsupportedByDevice

X = np.array([[1.5, 3.0, -2.0], [0.5, 2.5, 4.0], [2.0, -1.0, 0.25]], np.float32)
ROW = np.array([1.0, 2.0, 4.0], np.float32)
BITS = np.array([[1, 2, 3], [4, 5, 6]])
FINE = np.arange(-1, 6, 0.25, np.float32)
PLACES = np.array([[0, 2, 1]])

Call = Callable[[Any, Callable[[Any], Any]], Any]
"""A call of a function, the first argument, in which the second makes tensors, or arrays for NumPy's result."""

_DISPATCHER = type(np.sum)

TWO = (
    "allclose array_equal array_equiv cross dot inner isin kron outer polyadd polydiv polymul "
    "polysub setdiff1d setxor1d intersect1d union1d tensordot vdot isclose linalg.cross linalg.matmul linalg.outer "
    "linalg.tensordot linalg.vecdot linalg.tensorsolve may_share_memory shares_memory interp"
)
LISTS = "column_stack concat concatenate dstack hstack stack vstack block"

CALLS: dict[str, Call] = {
    "append": lambda f, t: f(t(X), t(ROW)),
    "apply_along_axis": lambda f, t: f(np.sum, 0, t(X)),
    "apply_over_axes": lambda f, t: f(np.sum, t(X), [0]),
    "argpartition": lambda f, t: f(t(ROW), 1),
    "array_split": lambda f, t: f(t(ROW), 2),
    "astype": lambda f, t: f(t(X), np.dtype(np.int32)),
    "bincount": lambda f, t: f(t(np.array([0, 2, 2]))),
    "broadcast_arrays": lambda f, t: f(t(X), t(ROW)),
    "broadcast_to": lambda f, t: f(t(ROW), (2, 3)),
    "busday_count": lambda f, t: f(t(ROW), t(ROW)),
    "busday_offset": lambda f, t: f(t(ROW), t(ROW)),
    "can_cast": lambda f, t: f(t(X).dtype, np.float64),
    "choose": lambda f, t: f(t(np.array([0, 1])), [1, 2]),
    "clip": lambda f, t: f(t(X), -1, 2),
    "compress": lambda f, t: f([True, False, True], t(ROW)),
    "convolve": lambda f, t: f(t(ROW), t(ROW[:2])),
    "correlate": lambda f, t: f(t(ROW), t(ROW[:2])),
    "copyto": lambda f, t: f(np.zeros(3, np.float32), t(ROW)),
    "cross": lambda f, t: f(t(ROW), t(ROW)),
    "datetime_as_string": lambda f, t: f(t(ROW)),
    "delete": lambda f, t: f(t(ROW), 0),
    "diag_indices_from": lambda f, t: f(t(X)),
    "digitize": lambda f, t: f(t(X), ROW),
    "dsplit": lambda f, t: f(t(np.ones((1, 1, 4), np.float32)), 2),
    "einsum": lambda f, t: f("ij,j->i", t(X), t(ROW)),
    "einsum_path": lambda f, t: f("ij,j->i", t(X), t(ROW)),
    "expand_dims": lambda f, t: f(t(X), 0),
    "extract": lambda f, t: f([True, False, True], t(ROW)),
    "fill_diagonal": lambda f, t: f(t(X), 1),
    "full_like": lambda f, t: f(t(X), 2),
    "geomspace": lambda f, t: f(t(ROW), 2 * ROW),
    "histogram2d": lambda f, t: f(t(ROW), t(ROW)),
    "hsplit": lambda f, t: f(t(X), 3),
    "insert": lambda f, t: f(t(ROW), 0, 1),
    "interp": lambda f, t: f(t(X), ROW, ROW),
    "is_busday": lambda f, t: f(t(ROW)),
    "ix_": lambda f, t: f(t(ROW), t(ROW)),
    "lexsort": lambda f, t: f((t(ROW), t(ROW))),
    "linspace": lambda f, t: f(t(ROW), 2 * ROW),
    "logspace": lambda f, t: f(t(ROW), 2 * ROW),
    "matmul": lambda f, t: f(t(X), t(X)),
    "matvec": lambda f, t: f(t(X), t(ROW)),
    "meshgrid": lambda f, t: f(t(ROW), t(ROW)),
    "moveaxis": lambda f, t: f(t(X), 0, 1),
    "nanpercentile": lambda f, t: f(t(X), 50),
    "nanquantile": lambda f, t: f(t(X), 0.5),
    "pad": lambda f, t: f(t(X), 1),
    "partition": lambda f, t: f(t(ROW), 1),
    "percentile": lambda f, t: f(t(X), 50),
    "piecewise": lambda f, t: f(t(ROW), [[True, False, True]], [1]),
    "place": lambda f, t: f(t(ROW), [True, False, True], [1]),
    "polyfit": lambda f, t: f(t(ROW), t(ROW), 1),
    "polyval": lambda f, t: f(t(ROW), 2),
    "put": lambda f, t: f(t(ROW), 0, 1),
    "put_along_axis": lambda f, t: f(t(X), PLACES, 1, 0),
    "putmask": lambda f, t: f(t(ROW), [True, False, True], 1),
    "quantile": lambda f, t: f(t(X), 0.5),
    "ravel_multi_index": lambda f, t: f(t(PLACES), (3, 3)),
    "repeat": lambda f, t: f(t(X), 2, 1),
    "reshape": lambda f, t: f(t(X), (1, 9)),
    "resize": lambda f, t: f(t(X), (2, 2)),
    "result_type": lambda f, t: f(t(X), np.float64),
    "roll": lambda f, t: f(t(X), 1, 0),
    "rollaxis": lambda f, t: f(t(X), 1),
    "searchsorted": lambda f, t: f(t(ROW), t(X)),
    "select": lambda f, t: f([t(X) > 0], [t(X)]),
    "split": lambda f, t: f(t(X), 3),
    "squeeze": lambda f, t: f(t(X[None])),
    "swapaxes": lambda f, t: f(t(X), 0, 1),
    "take": lambda f, t: f(t(X), [0, 2], 1),
    "take_along_axis": lambda f, t: f(t(X), PLACES, 1),
    "tile": lambda f, t: f(t(X), (2, 1)),
    "unravel_index": lambda f, t: f(t(PLACES), (3, 3)),
    "unwrap": lambda f, t: f(t(ROW)),
    "vander": lambda f, t: f(t(ROW)),
    "vecmat": lambda f, t: f(t(ROW), t(X)),
    "vsplit": lambda f, t: f(t(X), 3),
    "where": lambda f, t: f(t(X) > 0, t(X), t(ROW)),
    "cumulative_sum": lambda f, t: f(t(ROW)),
    "cumulative_prod": lambda f, t: f(t(ROW)),
    "packbits": lambda f, t: f(t(np.array([1, 0], np.uint8))),
    "unpackbits": lambda f, t: f(t(np.array([1, 0], np.uint8))),
    "ldexp": lambda f, t: f(t(X), 2),
    "linalg.lstsq": lambda f, t: f(t(X), t(ROW))[0],
    "linalg.matrix_power": lambda f, t: f(t(X), 2),
    "linalg.outer": lambda f, t: f(t(ROW), t(ROW)),
    "linalg.multi_dot": lambda f, t: f([t(X), t(X), t(X)]),
    "linalg.solve": lambda f, t: f(t(X), t(ROW)),
    "linalg.cholesky": lambda f, t: f(t(np.eye(3, dtype=np.float32))),
    "linalg.eigh": lambda f, t: f(t(np.diag(ROW))),
    "linalg.eigvalsh": lambda f, t: f(t(np.diag(ROW))),
    "linalg.tensorinv": lambda f, t: f(t(np.eye(4, dtype=np.float32).reshape(2, 2, 2, 2))),
    "linalg.tensorsolve": lambda f, t: f(
        t(np.eye(4, dtype=np.float32).reshape(2, 2, 2, 2)), t(np.ones((2, 2), np.float32))
    ),
    "linalg.qr": lambda f, t: f(t(X)),
}
"""Calls of functions that take more than one array."""

INTEGERS = (
    "bitwise_and bitwise_count bitwise_not bitwise_or bitwise_xor gcd invert lcm left_shift right_shift bitwise_invert "
    "bitwise_left_shift bitwise_right_shift"
)
SAVED = "save savetxt savez savez_compressed"
OTHERS = {"copyto", "may_share_memory", "shares_memory"}
"""Functions that return no tensors, as conversions and functions of shapes."""

UNSIGNED = {"linalg.qr", "linalg.svd", "linalg.eigh"}
"""Decompositions whose signs are free."""

COMPUTED = (
    "sum mean prod max min amax amin argmax argmin var std any all cumsum cumprod cumulative_sum clip where "
    "concatenate stack vstack hstack dstack column_stack split unstack transpose permute_dims reshape ravel "
    "broadcast_to broadcast_arrays expand_dims squeeze swapaxes moveaxis flip roll tile repeat take take_along_axis "
    "sort argsort searchsorted unique nonzero count_nonzero diff dot inner vdot tensordot einsum matrix_transpose "
    "tril triu meshgrid pad zeros_like ones_like full_like copy atleast_1d atleast_2d atleast_3d astype linalg.norm "
    "linalg.matmul linalg.tensordot linalg.vecdot exp expm1 log log1p hypot logaddexp sqrt sin arctan2 absolute "
    "maximum isnan floor sign signbit copysign add subtract multiply divide power matmul vecdot greater equal "
    "square rint round append argwhere array_split average convolve correlate corrcoef cov cross deg2rad delete exp2 "
    "extract flatnonzero fliplr flipud fmax fmin gradient heaviside hsplit interp intersect1d isin polyval rad2deg "
    "rot90 select setdiff1d sinc trapezoid union1d vsplit dsplit linalg.cross linalg.multi_dot"
)
"""Functions that must be computed; the others may be."""


@pytest.fixture(autouse=True)
def _numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLGPU_ADAPTER", "numpy")


def functions() -> Iterator[tuple[str, Any]]:
    """Yield NumPy's public functions that dispatch on their arguments, and ufuncs, by name."""
    for prefix, module in (("", np), ("linalg.", np.linalg), ("fft.", np.fft)):
        for name in dir(module):
            function = getattr(module, name)
            if not name.startswith("_") and isinstance(function, _DISPATCHER | np.ufunc):
                yield prefix + name, function


def call_of(name: str, function: Any, folder: Path) -> Call:
    """Return a call of a function on arrays that suit it."""
    rows = "poly" in name or name in ("roots", "trim_zeros", "diagflat", "i0", "ediff1d", "vdot")
    numbers = ROW if rows else abs(X) / 4
    operand = X > 0 if name.startswith("logical") else BITS if name in INTEGERS.split() else numbers
    kinds: list[tuple[bool, Call]] = [
        (name in SAVED.split(), lambda f, t: f(folder / f"{name}.npz", t(X))),
        (name in LISTS.split(), lambda f, t: f([t(ROW), t(ROW)])),
        (name in TWO.split() or getattr(function, "nin", 1) == 2, lambda f, t: f(t(operand), t(operand))),
        (True, lambda f, t: f(t(operand))),
    ]
    return CALLS.get(name) or next(call for applies, call in kinds if applies)


def parts(value: Any) -> list[Any]:
    """Return the results in a result."""
    return [part for item in value for part in parts(item)] if isinstance(value, list | tuple) else [value]


def is_same(name: str, result: Any, expected: Any) -> bool:
    """Return whether a result is NumPy's."""
    if isinstance(expected, str | type(None) | type | np.dtype):
        return bool(result == expected)
    if np.shape(result) != np.shape(expected) or name == "empty_like":
        return np.shape(result) == np.shape(expected)
    values, others = np.asarray(result), np.asarray(expected)
    if name in UNSIGNED:
        values, others = abs(values), abs(others)
    return np.allclose(values, others, 1e-4, 1e-5, equal_nan=True)


def fault_of(name: str, function: Any, call: Call) -> str | None:
    """Return what is wrong with NumPy's function on a Tensor, empty if it is computed there; None if it is rejected."""
    try:
        expected = call(function, np.array)
    except (TypeError, ValueError):
        expected = None  # such as dates
    try:
        result = call(function, Tensor)
    except UnsupportedByDevice as error:
        is_told = str(error).startswith("numpy.") and function.__name__ in str(error) and "x.numpy()" in str(error)
        return None if is_told else str(error)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    is_of_host = function.__name__ in numpy_functions._CONVERSIONS | numpy_functions._OF_LAYOUT | OTHERS
    if not is_of_host and not all(isinstance(part, Tensor) for part in parts(result)):
        return f"returns {[type(part).__name__ for part in parts(result)]}"
    pairs = zip(parts(result), parts(expected), strict=True)
    return "" if all(is_same(name, *pair) for pair in pairs) else f"{result!r}, NumPy {expected!r}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::RuntimeWarning")
def test_every_function_is_computed_on_the_device_or_rejected(tmp_path: Path) -> None:
    faults = {name: fault_of(name, function, call_of(name, function, tmp_path)) for name, function in functions()}
    wrong = [f"{name}: {fault}" for name, fault in faults.items() if fault]
    assert not wrong, "\n".join(wrong)
    rejected = [name for name in COMPUTED.split() if faults[name] is None]
    assert not rejected, rejected


OPTIONS: dict[str, Call] = {
    "np.sort(x, axis=None)": lambda f, t: np.sort(t(X), axis=None),
    "np.sort(x, 0, kind)": lambda f, t: np.sort(t(X), 0, kind="stable"),
    "np.argsort(x, None)": lambda f, t: np.argsort(t(X), None),
    "np.std(x, 1, ddof)": lambda f, t: np.std(t(X), 1, ddof=1),
    "np.var(x, correction)": lambda f, t: np.var(t(X), correction=1),
    "np.sum(x, 0, keepdims)": lambda f, t: np.sum(t(X), 0, keepdims=True),
    "np.sum(x, dtype)": lambda f, t: np.sum(t(BITS), dtype=np.int32),
    "np.argmax(x, 0, keepdims)": lambda f, t: np.argmax(t(X), 0, keepdims=True),
    "np.clip(x, None, 1)": lambda f, t: np.clip(t(X), None, 1),
    "np.clip(x, a_min)": lambda f, t: np.clip(t(X), a_min=0, a_max=None),
    "np.clip(x, max)": lambda f, t: np.clip(t(X), max=1),
    "np.concatenate(axis=None)": lambda f, t: np.concatenate([t(X), ROW[None]], axis=None),
    "np.concatenate of an array first": lambda f, t: np.concatenate([ROW, t(ROW)]),
    "np.take of an array": lambda f, t: np.take(t(X), np.array([[0, 5]])),
    "np.take(x, 1, 0)": lambda f, t: np.take(t(X), 1, 0),
    "np.repeat(x, counts)": lambda f, t: np.repeat(t(X), [1, 0, 2], axis=0),
    "np.tensordot(x, array, axes)": lambda f, t: np.tensordot(t(X), X, axes=([1], [0])),
    "np.tensordot(array, x, 1)": lambda f, t: np.tensordot(X, t(X), 1),
    "np.dot(x, row)": lambda f, t: np.dot(t(X), t(ROW)),
    "np.dot(row, row)": lambda f, t: np.dot(t(ROW), ROW),
    "np.dot(x, 2.0)": lambda f, t: np.dot(t(X), 2.0),
    "np.dot(x, tuple)": lambda f, t: np.dot(t(X), (1.0, 2.0, 3.0)),
    "np.vstack of a list": lambda f, t: np.vstack([t(X), [1.0, 2.0, 3.0]]),
    "np.dot(2, x)": lambda f, t: np.dot(t(np.float32(2)), t(X)),
    "np.dot of stacks": lambda f, t: np.dot(t(np.ones((2, 3, 4), np.float32)), t(np.ones((5, 4, 6), np.float32))),
    "np.inner of stacks": lambda f, t: np.inner(t(np.ones((2, 4), np.float32)), t(np.ones((5, 3, 4), np.float32))),
    "np.inner(x, row)": lambda f, t: np.inner(t(X), t(ROW)),
    "np.vdot(x, x)": lambda f, t: np.vdot(t(X), X),
    "np.vstack with an array": lambda f, t: np.vstack([t(X), ROW]),
    "np.hstack of matrices": lambda f, t: np.hstack([t(X), X]),
    "np.dstack of rows": lambda f, t: np.dstack([t(ROW), ROW]),
    "np.atleast_2d of several": lambda f, t: np.atleast_2d(t(ROW), t(X)),
    "np.atleast_3d(row)": lambda f, t: np.atleast_3d(t(ROW)),
    "np.atleast_3d(scalar)": lambda f, t: np.atleast_3d(t(np.float32(1))),
    "np.pad(x, constant_values)": lambda f, t: np.pad(t(X), ((0, 1), (2, 0)), constant_values=3),
    "np.pad(x, mode)": lambda f, t: np.pad(t(X), 1, mode="edge"),
    "np.where(condition)": lambda f, t: np.where(t(X) > 1),
    "np.unique(counts)": lambda f, t: np.unique(t(np.array([1, np.nan, np.nan], np.float32)), return_counts=True),
    "np.searchsorted(side)": lambda f, t: np.searchsorted(t(ROW), X, side="right"),
    "np.diff(n, prepend)": lambda f, t: np.diff(t(X), 1, 0, prepend=t(X[:1])),
    "np.zeros_like(dtype)": lambda f, t: np.zeros_like(t(X), dtype=np.int64),
    "np.linalg.norm(axis)": lambda f, t: np.linalg.norm(t(X), axis=1, keepdims=True),
    "np.einsum(array)": lambda f, t: np.einsum("ij,kj->ik", X, t(X)),
    "np.squeeze(axis)": lambda f, t: np.squeeze(t(X[None]), axis=0),
    "np.size(x, 0)": lambda f, t: np.size(t(X), 0),
    "np.hypot(x, array)": lambda f, t: np.hypot(t(X), X),
    "np.logaddexp(array, x)": lambda f, t: np.logaddexp(X, t(X)),
    "np.power(2, x)": lambda f, t: np.power(2.0, t(X)),
    "np.add.reduce(x)": lambda f, t: np.add.reduce(t(X)),
    "np.maximum.reduce(x, axis, keepdims)": lambda f, t: np.maximum.reduce(t(X), axis=1, keepdims=True),
    "np.multiply.reduce(x, axis=None)": lambda f, t: np.multiply.reduce(t(X), axis=None),
    "np.add.accumulate(x)": lambda f, t: np.add.accumulate(t(X)),
    "np.multiply.accumulate(x, 1)": lambda f, t: np.multiply.accumulate(t(X), 1),
    "np.subtract.outer(row, x)": lambda f, t: np.subtract.outer(t(ROW), t(X)),
    "np.subtract.outer(list, x)": lambda f, t: np.subtract.outer([1.0, 2.0], t(X)),
    "np.append(x, 5)": lambda f, t: np.append(t(ROW), 5),
    "np.append(x, array, 0)": lambda f, t: np.append(t(X), X, 0),
    "np.append(x, row of an axis, 1)": lambda f, t: np.append(t(X), X[:, :1], axis=1),
    "np.array_split of uneven parts": lambda f, t: np.array_split(t(np.arange(8, dtype=np.float32)), 3),
    "np.array_split at indices": lambda f, t: np.array_split(t(X), [1], axis=1),
    "np.array_split of more parts than rows": lambda f, t: np.array_split(t(ROW), 4)[:3],
    "np.average(x)": lambda f, t: np.average(t(X)),
    "np.average(weights of an axis)": lambda f, t: np.average(t(X), axis=1, weights=ROW),
    "np.average(array, weights)": lambda f, t: np.average(X, axis=0, weights=t(abs(X)), keepdims=True),
    "np.convolve(short, long)": lambda f, t: np.convolve(t(ROW[:2]), np.arange(5, dtype=np.float32)),
    "np.convolve same": lambda f, t: np.convolve(
        t(np.arange(5, dtype=np.float32)), t(np.arange(1, 5, dtype=np.float32)), "same"
    ),
    "np.convolve valid": lambda f, t: np.convolve(t(np.arange(5, dtype=np.float32)), t(ROW), "valid"),
    "np.correlate valid": lambda f, t: np.correlate(t(np.arange(5, dtype=np.float32)), t(ROW)),
    "np.correlate(short, long, full)": lambda f, t: np.correlate(t(ROW[:2]), t(np.arange(5, dtype=np.float32)), "full"),
    "np.correlate same": lambda f, t: np.correlate(t(np.arange(6, dtype=np.float32)), t(ROW), "same"),
    "np.corrcoef(x, y)": lambda f, t: np.corrcoef(t(X), t(ROW)),
    "np.corrcoef of columns": lambda f, t: np.corrcoef(t(X), rowvar=False),
    "np.cov(row)": lambda f, t: np.cov(t(ROW)),
    "np.cov(bias)": lambda f, t: np.cov(t(X), bias=True),
    "np.cov(ddof)": lambda f, t: np.cov(t(X), t(X), rowvar=False, ddof=0),
    "np.cross of rows of columns": lambda f, t: np.cross(t(X), t(X[::-1].copy()), axis=0),
    "np.cross broadcast": lambda f, t: np.cross(t(X), [1.0, 2.0, 4.0]),
    "np.delete(x, list, 1)": lambda f, t: np.delete(t(X), [0, 2], 1),
    "np.delete(x, slice)": lambda f, t: np.delete(t(X), slice(1, None, 3)),
    "np.delete(x, mask, 0)": lambda f, t: np.delete(t(X), np.array([True, False, True]), axis=0),
    "np.extract of a matrix": lambda f, t: np.extract(t(X) > 1, t(X)),
    "np.fmax with NaN": lambda f, t: np.fmax(t(np.array([np.nan, 1, np.nan], np.float32)), [2, np.nan, np.nan]),
    "np.fmin with NaN": lambda f, t: np.fmin(t(np.array([np.nan, 1, 3], np.float32)), 2),
    "np.gradient(row, 0.5)": lambda f, t: np.gradient(t(ROW), 0.5),
    "np.gradient of two axes": lambda f, t: np.gradient(t(X), 2.0, ROW),
    "np.gradient(axis)": lambda f, t: np.gradient(t(X), axis=1),
    "np.gradient(coordinates of both axes)": lambda f, t: np.gradient(t(X), ROW, axis=(0,)),
    "np.heaviside": lambda f, t: np.heaviside(t(np.array([-1, 0, 2, np.nan], np.float32)), 0.5),
    "np.interp outside": lambda f, t: np.interp(t(FINE), t(ROW), t(ROW**2)),
    "np.interp(left, right)": lambda f, t: np.interp(t(FINE), ROW, ROW**2, left=-1, right=9),
    "np.interp of one point": lambda f, t: np.interp(t(ROW), [1.0], [3.0]),
    "np.intersect1d": lambda f, t: np.intersect1d(t(X), ROW),
    "np.isin(list)": lambda f, t: np.isin(t(BITS), [2, 6, 9]),
    "np.isin(invert)": lambda f, t: np.isin(t(X), t(ROW), invert=True),
    "np.isin of nothing": lambda f, t: np.isin(t(X), np.zeros(0, np.float32)),
    "np.isin with NaN": lambda f, t: np.isin(t(np.array([np.nan, 1], np.float32)), np.array([1, np.nan], np.float32)),
    "np.linalg.cross": lambda f, t: np.linalg.cross(t(X), t(X.T.copy()), axis=0),
    "np.polyval": lambda f, t: np.polyval([1.0, -2.0, 3.0], t(X)),
    "np.polyval of a constant": lambda f, t: np.polyval(t(ROW[:1]), X),
    "np.rot90": lambda f, t: [np.rot90(t(X[:2]), k) for k in range(-1, 4)],
    "np.rot90(axes)": lambda f, t: np.rot90(t(np.arange(24).reshape(2, 3, 4)), 3, (2, 1)),
    "np.select": lambda f, t: np.select([t(X) > 2, X > 0], [t(X), 2 * X], -1),
    "np.sinc": lambda f, t: np.sinc(t(np.array([0, 0.5, -1.25], np.float32))),
    "np.trapezoid(x)": lambda f, t: np.trapezoid(t(X), ROW),
    "np.trapezoid(dx, axis)": lambda f, t: np.trapezoid(t(X), dx=0.5, axis=0),
    "np.trapezoid(x, axis)": lambda f, t: np.trapezoid(t(X), X, axis=0),
    "np.hsplit(row)": lambda f, t: np.hsplit(t(ROW), [1]),
    "np.real(x)": lambda f, t: np.real(t(X)),
}


def test_options_are_those_of_numpy() -> None:
    for name, call in OPTIONS.items():
        result, expected = call(None, Tensor), call(None, np.array)
        for part, value in zip(parts(result), parts(expected), strict=True):
            assert isinstance(part, Tensor) or name == "np.size(x, 0)", name
            assert np.shape(part) == np.shape(value), name
            np.testing.assert_allclose(np.asarray(part), value, 1e-5, 1e-6, err_msg=name)


REJECTED: dict[str, Callable[[Tensor], Any]] = {
    "numpy.sum of a Tensor takes no 'where'; use dmlgpu.ops.sum, or pass x.numpy()": lambda x: np.sum(x, where=X > 0),
    "numpy.sum of a Tensor takes no 'out'; use dmlgpu.ops.sum, or pass x.numpy()": lambda x: np.sum(
        x, out=np.zeros(())
    ),
    "numpy.reshape of a Tensor takes no 'order'; use dmlgpu.ops.reshape": lambda x: np.reshape(x, 9, order="F"),
    "numpy.ravel of a Tensor takes no 'order'; pass x.numpy()": lambda x: np.ravel(x, "F"),
    "numpy.take of a Tensor takes no 'mode'; use dmlgpu.ops.take": lambda x: np.take(x, 1, mode="clip"),
    "numpy.unique of a Tensor takes no 'axis'; use dmlgpu.ops.unique": lambda x: np.unique(x, axis=0),
    "numpy.add of a Tensor takes no 'out'; use dmlgpu.ops.add": lambda x: np.add(x, 1, out=X.copy()),
    "numpy.exp of a Tensor takes no 'where'; use dmlgpu.ops.exp": lambda x: np.exp(x, where=X > 0),
    "numpy.add.reduce of a Tensor takes no 'where'; use dmlgpu.ops.sum": lambda x: np.add.reduce(x, where=X > 0),
    "numpy.subtract.reduce of a Tensor is not computed on the device; pass x.numpy()": np.subtract.reduce,
    "numpy.add.at of a Tensor is not computed on the device; pass x.numpy()": lambda x: np.add.at(x, 0, 1),
    "numpy.add.outer of a Tensor takes no 'dtype'; pass x.numpy()": lambda x: np.add.outer(x, x, dtype=np.float64),
    "numpy.interp of a Tensor takes no 'period'; pass x.numpy()": lambda x: np.interp(x, x[0], x[0], period=3),
    "numpy.unwrap of a Tensor is not computed on the device; pass x.numpy(), which copies": np.unwrap,
    "numpy.fft.fft of a Tensor is not computed on the device": np.fft.fft,
    "numpy.resize of a Tensor is not computed on the device": lambda x: np.resize(x, (2, 2)),
    "numpy.copyto of a Tensor is not computed on the device": lambda x: np.copyto(x, 1),  # type: ignore[call-overload]
    "numpy.spacing of a Tensor is not computed on the device": np.spacing,
}


def test_rejections_name_the_argument_and_a_replacement() -> None:
    for text, call in REJECTED.items():
        with pytest.raises(TypeError) as caught:
            call(Tensor(X))
        assert isinstance(caught.value, DmlError) and str(caught.value).startswith(text), (text, str(caught.value))


def test_functions_that_appear_later_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def vander(x: Any, increasing: bool = True) -> Any:
        return x * (2 if increasing else 1)

    vander.__module__ = "dmlgpu.ops.later"
    monkeypatch.setattr(ops, "vander", vander, raising=False)
    monkeypatch.setattr(ops, "__all__", [*ops.__all__, "vander"])
    assert np.vander(Tensor(X)).tolist() == X.tolist()
    assert np.vander(Tensor(X), increasing=True).tolist() == (2 * X).tolist()


def test_functions_written_in_c_before_numpy_2_4(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no signature there: arguments are passed on."""
    signature = inspect.signature
    without = (np.concatenate, np.where, np.dot, np.inner, np.vdot)

    def fails(function: Any) -> Any:
        if function in without:
            raise ValueError("no signature")
        return signature(function)

    monkeypatch.setattr(numpy_functions, "_signature", fails)
    x = Tensor(X)
    np.testing.assert_array_equal(np.concatenate([x, x], axis=1).numpy(), np.concatenate([X, X], axis=1))
    np.testing.assert_array_equal(np.concatenate((x, X), 0).numpy(), np.concatenate([X, X]))
    np.testing.assert_array_equal(np.where(x > 1, x, 0.0).numpy(), np.where(X > 1, X, 0))
    np.testing.assert_allclose(np.dot(x, x).numpy(), X @ X, 1e-6)
    np.testing.assert_allclose(np.inner(x, x).numpy(), X @ X.T, 1e-6)
    with pytest.raises(TypeError, match=r"^numpy\.concatenate of a Tensor takes no 'dtype'"):
        np.concatenate([x, x], dtype=np.float64)


def test_conversions_stay_explicit(tmp_path: Path) -> None:
    x = Tensor(X)
    for convert in (np.asarray, np.array, np.asanyarray, np.ascontiguousarray):
        assert type(convert(x)) is np.ndarray and np.array_equal(convert(x), X)
    np.testing.assert_array_equal(x, X)
    np.testing.assert_allclose(x, X.astype(np.float64))
    assert np.allclose(x, X.astype(np.float64)) is True and np.array_equal(x, Tensor(X)) is True
    np.save(tmp_path / "x.npy", x)
    assert np.array_equal(np.load(tmp_path / "x.npy"), X)
    target = np.zeros_like(X)
    np.copyto(target, x)
    assert np.array_equal(target, X) and np.array2string(x) == np.array2string(X)


def test_memory_and_shapes() -> None:
    x = Tensor(X)
    assert np.shares_memory(x, x.T) and np.may_share_memory(x[1:], x)
    assert not np.shares_memory(x, x + 0) and not np.may_share_memory(x, X) and not np.may_share_memory(X, x)
    views = np.broadcast_arrays(x, ROW, 2, None)
    assert [type(view) for view in views] == [Tensor, np.ndarray, np.ndarray, np.ndarray]
    assert all(np.shape(view) == (3, 3) for view in views) and views[3][0, 0] is None
    assert np.result_type(x, np.int64) == np.float64 and np.iscomplexobj(x) is False and np.common_type(x) is np.float32
    assert np.einsum_path("ij,jk", x, x)[0] == ["einsum_path", (0, 1)]


def test_libraries_that_convert_tensors() -> None:
    preprocessing = pytest.importorskip("sklearn.preprocessing", reason="scikit-learn is not installed")
    np.testing.assert_allclose(
        preprocessing.StandardScaler().fit_transform(Tensor(X)), preprocessing.StandardScaler().fit_transform(X), 1e-5
    )
    figure = pytest.importorskip("matplotlib.figure", reason="Matplotlib is not installed")
    axes = figure.Figure().subplots()
    for plot in (axes.plot, axes.bar, axes.scatter, axes.step):
        plot(Tensor(ROW), Tensor(ROW))
    axes.hist(Tensor(ROW))
    axes.imshow(Tensor(X))


def test_traced_functions_and_other_libraries() -> None:
    traced = dmlgpu.compile(lambda a: np.hypot(np.vstack([a, a]), 1.0) + np.sort(a, axis=None)[0])
    expected = np.hypot(np.vstack([X, X]), 1) + X.min()
    np.testing.assert_allclose(traced(Tensor(X)).numpy(), expected, 1e-6)

    def composed(a: Any, row: Any) -> Any:
        return np.interp(a, row, np.rot90(a)[0]) + np.isin(a, row) * np.cov(a)

    np.testing.assert_allclose(dmlgpu.compile(composed)(Tensor(X), Tensor(ROW)).numpy(), composed(X, ROW), 1e-5)

    class Foreign:
        def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> str:
            return f"{function.__name__} of another library"

    assert np.concatenate([Tensor(X), Foreign()]) == "concatenate of another library"  # type: ignore[list-item]
