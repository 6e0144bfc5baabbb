"""Functions of NumPy that ``dmlgpu.ops`` lacks, composed of those that it has.

They have NumPy's parameters, less those that are not supported, which must then have NumPy's defaults. All run on the
device and can be traced, except those whose shapes depend on values.
"""

from __future__ import annotations

import functools
import importlib
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dmlgpu.common.errors import InvalidArgument
from dmlgpu.tensors.methods import ops
from dmlgpu.tensors.strided import TensorBase


def as_tensor(x: Any, neighbour: Any) -> Any:
    """Return a tensor as it is, other values on the device of a tensor, numbers in its dtype."""
    if isinstance(x, TensorBase):
        return x
    return neighbour._beside(x, neighbour.dtype if isinstance(x, int | float) else None)


def as_tensors(*operands: Any) -> list[Any]:
    """Return operands, at least one of which is a tensor, as tensors."""
    neighbour = next(x for x in operands if isinstance(x, TensorBase))
    return [as_tensor(x, neighbour) for x in operands]


# ---- shapes ----------------------------------------------------------------------------------------------------------


def _with_rank(rank: int, arrays: Sequence[Any]) -> Any:
    """Return tensors with at least `rank` axes, as ``np.atleast_3d`` adds them: one, or a tuple."""
    new = {(1, 0): (0,), (2, 0): (0, 1), (2, 1): (0,), (3, 0): (0, 1, 2), (3, 1): (0, 2), (3, 2): (2,)}
    results = tuple(x.expand_dims(new[rank, x.ndim]) if x.ndim < rank else x for x in arrays)
    return results if len(results) != 1 else results[0]


def _stacked(rank: int, axis: int) -> Callable[[Any], Any]:
    def stack(tup: Any) -> Any:
        parts = [_with_rank(rank, [part]) for part in as_tensors(*tup)]
        return ops().concatenate(parts, min(axis, parts[0].ndim - 1))

    return stack


def _column_stack(tup: Any) -> Any:
    return ops().concatenate([_with_rank(2, [part]).T if part.ndim < 2 else part for part in as_tensors(*tup)], 1)


def _append(arr: Any, values: Any, axis: int | None = None) -> Any:
    parts = as_tensors(arr, values)
    return ops().concatenate([part.reshape(-1) for part in parts] if axis is None else parts, axis or 0)


def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Any]:
    size, before = ary.shape[axis], (slice(None),) * (axis % ary.ndim)
    if isinstance(indices_or_sections, int):
        short, longer = divmod(size, indices_or_sections)
        indices_or_sections = [i * short + min(i, longer) for i in range(1, indices_or_sections)]
    indices = [0, *np.asarray(indices_or_sections).tolist(), size]
    return [ary[*before, start:end] for start, end in itertools.pairwise(indices)]


def _split_along(axis: int) -> Callable[[Any, Any], Any]:
    def split(ary: Any, indices_or_sections: Any) -> Any:
        return ops().split(ary, np.asarray(indices_or_sections).tolist(), min(axis, ary.ndim - 1))

    return split


def _rot90(m: Any, k: int = 1, axes: Sequence[int] = (0, 1)) -> Any:
    first, second = axes
    match k % 4:
        case 0:
            return m
        case 1:
            return ops().flip(m, second).swapaxes(first, second)
        case 2:
            return ops().flip(m, (first, second))
    return ops().flip(m.swapaxes(first, second), second)


def _delete(arr: Any, obj: Any, axis: int | None = None) -> Any:
    if axis is None:
        arr, axis = arr.reshape(-1), 0
    remaining = np.delete(np.arange(arr.shape[axis]), obj if isinstance(obj, slice) else np.asarray(obj))
    return ops().take(arr, remaining, axis)


# ---- elements --------------------------------------------------------------------------------------------------------


def _scaled(factor: float) -> Callable[[Any], Any]:
    return lambda x: x * factor


def _of_numbers(name: str) -> Callable[[Any, Any], Any]:
    """Return ``maximum`` or ``minimum`` of the operands that are not NaN."""

    def function(x1: Any, x2: Any) -> Any:
        x1, x2 = as_tensors(x1, x2)
        chosen = getattr(ops(), name)(x1, x2)
        return ops().where(x1 != x1, x2, ops().where(x2 != x2, x1, chosen))  # noqa: PLR0124 - NaN differs from itself

    return function


def _heaviside(x1: Any, x2: Any) -> Any:
    x1, x2 = as_tensors(x1, x2)
    return ops().where(x1 == 0, x2, ops().where(x1 < 0, 0, ops().where(x1 > 0, 1, x1)))


def _sinc(x: Any) -> Any:
    angle = math.pi * x
    return ops().where(x == 0, 1, ops().sin(angle) / angle)


def _where(condition: Any, *values: Any) -> Any:
    return ops().where(condition, *values) if values else ops().nonzero(condition)


def _select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    pairs = list(zip(condlist, choicelist, strict=True))
    return functools.reduce(lambda result, pair: ops().where(*pair, result), reversed(pairs), default)


def _polyval(p: Any, x: Any) -> Any:
    p, x = as_tensors(p, x)
    result = 0 * x
    for index in range(p.shape[0]):
        result = result * x + p[index]
    return result


def _interp(x: Any, xp: Any, fp: Any, left: float | None = None, right: float | None = None) -> Any:
    x, xp, fp = as_tensors(x, xp, fp)
    last = xp.shape[0] - 1
    lower = ops().clip(ops().searchsorted(xp, x, side="right") - 1, 0, max(last - 1, 0))
    upper = ops().clip(lower + 1, 0, last)
    start, distance = ops().take(xp, lower), ops().take(xp, upper) - ops().take(xp, lower)
    y = ops().take(fp, lower)
    slope = (ops().take(fp, upper) - y) / ops().where(distance > 0, distance, 1)
    inside = ops().where(x == xp[last], fp[last], y + (x - start) * slope)
    below = ops().where(x < xp[0], fp[0] if left is None else left, inside)
    return ops().where(x > xp[last], fp[last] if right is None else right, below)


# ---- sums and products -----------------------------------------------------------------------------------------------


def _product(axis_of_b: int) -> Callable[[Any, Any], Any]:
    """Return a function that sums products over the last axis of a and an axis of b."""

    def product(a: Any, b: Any) -> Any:
        if not (np.ndim(a) and np.ndim(b)):
            return a * b
        tensordot = importlib.import_module("dmlgpu.array").tensordot
        return tensordot(a, b, axes=((-1,), (max(axis_of_b, -b.ndim),)))

    return product


def _cross(a: Any, b: Any, *, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: int | None = None) -> Any:
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = as_tensors(a, b)
    a, b = ops().moveaxis(a, axisa, -1), ops().moveaxis(b, axisb, -1)
    if a.shape[-1] != 3 or b.shape[-1] != 3:
        raise InvalidArgument(f"cross: vectors must have 3 elements, got shapes {list(a.shape)} and {list(b.shape)}")
    roll = ops().roll
    result = roll(a, -1, -1) * roll(b, 1, -1) - roll(a, 1, -1) * roll(b, -1, -1)
    return ops().moveaxis(result, -1, axisc)


def _convolve(a: Any, v: Any, mode: str = "full") -> Any:
    a, v = as_tensors(a, v)
    if a.ndim != 1 or v.ndim != 1:
        raise InvalidArgument(f"convolve: operands must have rank 1, got shapes {list(a.shape)} and {list(v.shape)}")
    a, v = (v, a) if v.shape[0] > a.shape[0] else (a, v)
    size, count = v.shape[0], a.shape[0]
    full = ops().conv1d(a[None, None], v[::-1][None, None], padding=size - 1)[0, 0]
    match mode:
        case "full":
            return full
        case "same":
            return full[(size - 1) // 2 : (size - 1) // 2 + count]
        case "valid":
            return full[size - 1 : count]
    raise InvalidArgument(f"convolve: mode must be full, same or valid, got {mode!r}")


def _average(a: Any, axis: Any = None, weights: Any = None, keepdims: bool = False) -> Any:
    if weights is None:
        return ops().mean(a, axis, keepdims)
    a, weights = as_tensors(a, weights)
    if weights.ndim == 1 and a.ndim > 1 and isinstance(axis, int):
        weights = weights.reshape([-1 if index == axis % a.ndim else 1 for index in range(a.ndim)])
    total = ops().sum(weights.broadcast_to(a.shape), axis, keepdims)
    return ops().sum(a * weights, axis, keepdims) / total


def _trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = ops().moveaxis(y, axis, -1)
    if x is not None:
        x = as_tensor(x, y)
        dx = ops().diff(x if x.ndim == 1 else ops().moveaxis(x, axis, -1))
    return ops().sum((y[..., 1:] + y[..., :-1]) * dx, -1) / 2


def _gradient(f: Any, *varargs: Any, axis: Any = None) -> Any:
    axes = range(f.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    spacings = list(varargs) * (len(axes) if len(varargs) == 1 else 1) or [1.0] * len(axes)
    if len(spacings) != len(axes):
        raise InvalidArgument(
            f"gradient: there must be one spacing, or one for each of {len(axes)} axes, got {len(varargs)}"
        )
    results = [_slope(f, spacing, index) for spacing, index in zip(spacings, axes, strict=True)]
    return results[0] if len(results) == 1 else tuple(results)


def _slope(f: Any, spacing: Any, axis: int) -> Any:
    """Return differences divided by distances: central ones inside, one-sided ones at both ends."""
    f = ops().moveaxis(f, axis, -1)
    if f.shape[-1] < 2:
        raise InvalidArgument(f"gradient: an axis must have 2 elements or more, got shape {list(f.shape)}")
    steps = ops().diff(f)
    if np.ndim(spacing):
        distances = ops().diff(as_tensor(spacing, f))
        steps = steps / distances
        before, after = distances[:-1], distances[1:]
        inside = (after * steps[..., :-1] + before * steps[..., 1:]) / (before + after)
    else:
        steps = steps / spacing
        inside = (steps[..., :-1] + steps[..., 1:]) / 2
    return ops().moveaxis(ops().concatenate([steps[..., :1], inside, steps[..., -1:]], -1), -1, axis)


def _cov(m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, correction: int | None = None) -> Any:
    parts = [m] if y is None else as_tensors(m, y)
    rows = [part.T if part.ndim == 2 and not rowvar else _with_rank(2, [part]) for part in parts]
    x = ops().concatenate(rows, 0)
    deviation = x - ops().mean(x, 1, keepdims=True)
    divisor = x.shape[1] - (int(not bias) if correction is None else correction)
    return ops().squeeze(deviation @ deviation.T / divisor)


def _corrcoef(x: Any, y: Any = None, rowvar: bool = True) -> Any:
    covariance = _cov(x, y, rowvar)
    if not covariance.ndim:
        return covariance / covariance
    deviation = ops().sqrt(ops().diagonal(covariance))
    return ops().clip(covariance / deviation[:, None] / deviation, -1, 1)


# ---- sets ------------------------------------------------------------------------------------------------------------


def _isin(element: Any, test_elements: Any, invert: bool = False) -> Any:
    element, members = as_tensors(element, test_elements)
    members = ops().sort(members.reshape(-1))
    if not members.shape[0]:
        return ops().full_like(element, invert, dtype="bool")
    index = ops().clip(ops().searchsorted(members, element), 0, members.shape[0] - 1)
    is_member = ops().take(members, index) == element
    return ~is_member if invert else is_member


def _intersect1d(ar1: Any, ar2: Any) -> Any:
    values = ops().unique(ar1)
    return values[_isin(values, ar2)]


def _setdiff1d(ar1: Any, ar2: Any) -> Any:
    values = ops().unique(ar1)
    return values[_isin(values, ar2, invert=True)]


def _argwhere(a: Any) -> Any:
    return ops().stack(ops().nonzero(a), 1)


COMPOSED: dict[str, Callable[..., Any]] = {
    "append": _append,
    "argwhere": _argwhere,
    "array_split": _array_split,
    "atleast_1d": lambda *arys: _with_rank(1, arys),
    "atleast_2d": lambda *arys: _with_rank(2, arys),
    "atleast_3d": lambda *arys: _with_rank(3, arys),
    "average": _average,
    "column_stack": _column_stack,
    "conjugate": lambda x: x,
    "convolve": _convolve,
    "copy": lambda a: a.copy(),
    "corrcoef": _corrcoef,
    "correlate": lambda a, v, mode="valid": _convolve(a, ops().flip(v), mode),
    "cov": _cov,
    "cross": _cross,
    "deg2rad": _scaled(math.pi / 180),
    "degrees": _scaled(180 / math.pi),
    "delete": _delete,
    "dot": _product(-2),
    "dsplit": _split_along(2),
    "dstack": _stacked(3, 2),
    "exp2": lambda x: 2.0**x,
    "extract": lambda condition, arr: arr.reshape(-1)[condition.reshape(-1) != 0],
    "flatnonzero": lambda a: ops().nonzero(a.reshape(-1))[0],
    "fliplr": lambda m: ops().flip(m, 1),
    "flipud": lambda m: ops().flip(m, 0),
    "fmax": _of_numbers("maximum"),
    "fmin": _of_numbers("minimum"),
    "gradient": _gradient,
    "heaviside": _heaviside,
    "hsplit": _split_along(1),
    "hstack": _stacked(1, 1),
    "inner": _product(-1),
    "interp": _interp,
    "intersect1d": _intersect1d,
    "isin": _isin,
    "linalg.cross": lambda x1, x2, axis=-1: _cross(x1, x2, axis=axis),
    "linalg.multi_dot": lambda arrays: functools.reduce(_product(-2), arrays),
    "polyval": _polyval,
    "rad2deg": _scaled(180 / math.pi),
    "radians": _scaled(math.pi / 180),
    "ravel": lambda a: a.reshape(-1),
    "real": lambda val: val,
    "rot90": _rot90,
    "select": _select,
    "setdiff1d": _setdiff1d,
    "sinc": _sinc,
    "trapezoid": _trapezoid,
    "union1d": lambda ar1, ar2: ops().unique(_append(ar1, ar2)),
    "vdot": lambda a, b: a.reshape(-1) @ b.reshape(-1),
    "vsplit": _split_along(0),
    "vstack": _stacked(2, 0),
    "where": _where,
}
"""Functions by NumPy's names."""
