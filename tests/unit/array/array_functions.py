"""Functions of the array API's namespace and NumPy's of the same name: arguments, and operands for the comparison."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TYPES = ("bool", *INTEGERS, "float32")

SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, -2.5, 3.0, 1e-5, 100.0], np.float32)
"""Numbers for which the standard says what functions return."""

FLOATING = "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal signbit sin sinh"
FLOATING += " sqrt tan tanh"
NUMERIC = "abs ceil conj floor imag isfinite isinf isnan negative positive real round sign square trunc"

FLOATING_PAIRS = "atan2 copysign divide hypot logaddexp nextafter"
NUMERIC_PAIRS = "add equal floor_divide greater greater_equal less less_equal maximum minimum multiply not_equal pow"
NUMERIC_PAIRS += " remainder subtract"
WHOLE_PAIRS = "bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor"
TRUTH_PAIRS = "bitwise_and bitwise_or bitwise_xor equal logical_and logical_or logical_xor not_equal"


def whole(dtype: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return pairs of integers, those at the ends of the type among the first."""
    info = np.iinfo(dtype)
    first = np.array([0, 1, 2, 3, 5, 7, info.max, info.max - 1, info.min], dtype)
    return first, np.array([1, 2, 3, 1, 2, 3, 5, 4, 7], dtype)


ARRAY = np.array([[[3, 1, 4, 1], [5, 9, 2, 6], [5, 3, 5, 8]], [[9, 7, 9, 3], [2, 3, 8, 4], [6, 2, 6, 4]]])
ROW = np.array([1, 3, 5, 7, 7, 9])

SAME: dict[str, Callable[[Any, Any], Any]] = {
    "arange": lambda xp, a: xp.arange(10, 2, -3),
    "arange of floats": lambda xp, a: xp.arange(0.0, 1.0, 0.25, dtype=xp.float32),
    "arange of nothing": lambda xp, a: xp.arange(3, 1),
    "arange downwards, unsigned": lambda xp, a: xp.arange(9, 1, -2, dtype=xp.uint8),
    "asarray of lists": lambda xp, a: xp.asarray([[1, 2], [3, 4]]),
    "asarray of booleans": lambda xp, a: xp.asarray([True, False]),
    "asarray in another type": lambda xp, a: xp.asarray(a(ARRAY), dtype=xp.int16),
    "empty": lambda xp, a: xp.empty((0, 3), dtype=xp.int8),
    "eye": lambda xp, a: xp.eye(3, 4, k=-1, dtype=xp.int32),
    "eye of nothing": lambda xp, a: xp.eye(0, dtype=xp.float32),
    "full": lambda xp, a: xp.full((2, 3), 7),
    "full of booleans": lambda xp, a: xp.full(3, True),
    "full without dimensions": lambda xp, a: xp.full((), 2, dtype=xp.uint64),
    "full_like": lambda xp, a: xp.full_like(a(ARRAY), 5, dtype=xp.uint16),
    "linspace": lambda xp, a: xp.linspace(-1.0, 2.0, 7, dtype=xp.float32),
    "linspace without its end": lambda xp, a: xp.linspace(0.0, 1.0, 5, dtype=xp.float32, endpoint=False),
    "meshgrid": lambda xp, a: tuple(xp.meshgrid(a(ROW), a(ROW[:2]))),
    "meshgrid by rows": lambda xp, a: tuple(xp.meshgrid(a(ROW), a(ROW[:2]), a(ROW[:3]), indexing="ij")),
    "ones": lambda xp, a: xp.ones((2, 2), dtype=xp.uint8),
    "ones_like": lambda xp, a: xp.ones_like(a(ARRAY)),
    "tril": lambda xp, a: xp.tril(a(ARRAY), k=1),
    "triu": lambda xp, a: xp.triu(a(ARRAY), k=-1),
    "zeros": lambda xp, a: xp.zeros((2, 0, 3), dtype=xp.int64),
    "zeros_like": lambda xp, a: xp.zeros_like(a(ARRAY)),
    "broadcast_arrays": lambda xp, a: tuple(xp.broadcast_arrays(a(ARRAY), a(ARRAY[0, 0]))),
    "concat": lambda xp, a: xp.concat([a(ARRAY), a(ARRAY[:, :1])], axis=1),
    "concat of rows": lambda xp, a: xp.concat([a(ARRAY), a(ROW)], axis=None),
    "concat with nothing": lambda xp, a: xp.concat([a(ARRAY[:0]), a(ARRAY)]),
    "concat of types": lambda xp, a: xp.concat([a(ROW.astype("int8")), a(ROW.astype("uint8"))]),
    "expand_dims": lambda xp, a: xp.expand_dims(a(ARRAY), axis=-1),
    "flip": lambda xp, a: xp.flip(a(ARRAY), axis=(0, -1)),
    "moveaxis": lambda xp, a: xp.moveaxis(a(ARRAY), (0, 1), (-1, 0)),
    "permute_dims": lambda xp, a: xp.permute_dims(a(ARRAY), (2, 0, 1)),
    "repeat": lambda xp, a: xp.repeat(a(ARRAY), 3, axis=1),
    "repeat by array": lambda xp, a: xp.repeat(a(ARRAY), a(np.array([2, 0, 1])), axis=1),
    "repeat of a row": lambda xp, a: xp.repeat(a(ARRAY), 2),
    "reshape": lambda xp, a: xp.reshape(a(ARRAY), (4, -1)),
    "roll": lambda xp, a: xp.roll(a(ARRAY), (1, -2), axis=(0, 2)),
    "roll of a row": lambda xp, a: xp.roll(a(ARRAY), 5),
    "squeeze": lambda xp, a: xp.squeeze(a(ARRAY[:, :1]), axis=1),
    "stack": lambda xp, a: xp.stack([a(ARRAY), a(ARRAY)], axis=-1),
    "tile": lambda xp, a: xp.tile(a(ARRAY), (2, 1, 1, 3)),
    "unstack": lambda xp, a: xp.unstack(a(ARRAY), axis=1),
    "take": lambda xp, a: xp.take(a(ARRAY), a(np.array([2, 0, -1])), axis=1),
    "take_along_axis": lambda xp, a: xp.take_along_axis(a(ARRAY), a(np.argsort(ARRAY, axis=1)), axis=1),
    "argmax": lambda xp, a: xp.argmax(a(ARRAY), axis=1),
    "argmax of a row": lambda xp, a: xp.argmax(a(ARRAY), keepdims=True),
    "argmin": lambda xp, a: xp.argmin(a(ARRAY), axis=-1, keepdims=True),
    "argmin with NaN": lambda xp, a: xp.argmin(a(SPECIAL)),
    "count_nonzero": lambda xp, a: xp.count_nonzero(a(ARRAY - 3), axis=(0, 2)),
    "nonzero": lambda xp, a: xp.nonzero(a(ARRAY - 3)),
    "searchsorted": lambda xp, a: xp.searchsorted(a(ROW), a(ARRAY)),
    "searchsorted to the right": lambda xp, a: xp.searchsorted(a(ROW), a(ARRAY), side="right"),
    "where": lambda xp, a: xp.where(a(ARRAY > 4), a(ARRAY), a(-ARRAY[0, 0])),
    "argsort": lambda xp, a: xp.argsort(a(ARRAY), axis=0, stable=True),
    "sort": lambda xp, a: xp.sort(a(ARRAY), axis=1),
    "sort of nothing": lambda xp, a: xp.sort(a(ARRAY[:, :0]), axis=1),
    "unique_all": lambda xp, a: tuple(xp.unique_all(a(ARRAY))),
    "unique_all with NaN": lambda xp, a: tuple(xp.unique_all(a(np.array([np.nan, 1, np.nan, 1], np.float32)))),
    "unique_counts": lambda xp, a: tuple(xp.unique_counts(a(ROW))),
    "unique_inverse": lambda xp, a: tuple(xp.unique_inverse(a(ARRAY))),
    "unique_values of nothing": lambda xp, a: xp.unique_values(a(ARRAY[:0])),
    "unique_values of booleans": lambda xp, a: xp.unique_values(a(ARRAY > 3)),
    "cumulative_prod": lambda xp, a: xp.cumulative_prod(a(ARRAY), axis=1, include_initial=True),
    "cumulative_sum": lambda xp, a: xp.cumulative_sum(a(ARRAY), axis=2),
    "cumulative_sum in a narrow type": lambda xp, a: xp.cumulative_sum(a(ROW * 20), dtype=xp.int8),
    "max": lambda xp, a: xp.max(a(ARRAY), axis=(0, 2)),
    "max with NaN": lambda xp, a: xp.max(a(SPECIAL.reshape(3, 4)), axis=1),
    "mean": lambda xp, a: xp.mean(a(ARRAY.astype("float32")), axis=1, keepdims=True),
    "mean without axes": lambda xp, a: xp.mean(a(ARRAY.astype("float32")), axis=()),
    "min": lambda xp, a: xp.min(a(ARRAY), keepdims=True),
    "prod": lambda xp, a: xp.prod(a(ARRAY), axis=2),
    "prod of nothing": lambda xp, a: xp.prod(a(ARRAY[:0]), axis=0),
    "std": lambda xp, a: xp.std(a(ARRAY.astype("float32")), axis=1, correction=1),
    "sum": lambda xp, a: xp.sum(a(ARRAY.astype("uint8"))),
    "sum of nothing": lambda xp, a: xp.sum(a(ARRAY[:, :0]), axis=1),
    "sum in a narrow type": lambda xp, a: xp.sum(a(ARRAY * 20), axis=0, dtype=xp.uint8),
    "var": lambda xp, a: xp.var(a(ARRAY.astype("float32")), axis=(0, 1)),
    "all": lambda xp, a: xp.all(a(ARRAY > 1), axis=1),
    "all of nothing": lambda xp, a: xp.all(a(ARRAY[:0])),
    "any": lambda xp, a: xp.any(a(ARRAY - 9), axis=(0, 1)),
    "diff": lambda xp, a: xp.diff(a(ARRAY), n=2, prepend=a(ARRAY[:, :, :1])),
    "diff along an axis": lambda xp, a: xp.diff(a(ARRAY), axis=0),
    "matmul": lambda xp, a: xp.matmul(a(ARRAY), a(ARRAY[0].T)),
    "matmul of floats": lambda xp, a: xp.matmul(a(ARRAY.astype("float32")), a(ROW[:4].astype("float32"))),
    "matmul of nothing": lambda xp, a: xp.matmul(a(ARRAY[:, :0]), a(ARRAY[0].T)),
    "matrix_transpose": lambda xp, a: xp.matrix_transpose(a(ARRAY)),
    "tensordot": lambda xp, a: xp.tensordot(a(ARRAY), a(ARRAY), axes=((0, 2), (0, 2))),
    "tensordot over nothing": lambda xp, a: xp.tensordot(a(ROW), a(ROW), axes=0),
    "vecdot": lambda xp, a: xp.vecdot(a(ARRAY), a(ROW[:4])),
    "clip": lambda xp, a: xp.clip(a(ARRAY), 2, a(ROW[2:])),
    "isdtype": lambda xp, a: xp.isdtype(xp.uint8, ("signed integer", "bool")),
    "result_type": lambda xp, a: xp.result_type(xp.int8, xp.uint16),
    "can_cast": lambda xp, a: xp.can_cast(xp.int8, xp.int32),
    "astype": lambda xp, a: xp.astype(a(ARRAY), xp.float32),
    "astype of booleans": lambda xp, a: xp.astype(a(ARRAY - 3), xp.bool),
}
"""What gives the same by NumPy's namespace; ``a`` makes one of its arrays."""

INDICES: dict[str, Any] = {
    "an integer": 1,
    "slices": (slice(None, None, -1), 0, slice(1, 3)),
    "an empty slice": (slice(2, 2), 1),
    "new axes": (None, Ellipsis, None, 1),
    "a mask": ARRAY > 4,
    "a mask of rows": np.array([True, False]),
    "a mask and a slice": (slice(None), np.array([True, False, True]), slice(0, 2)),
    "an empty mask": np.zeros((2, 3, 4), bool),
    "integers": np.array([[1, 0], [-1, 1]]),
    "small integers": np.array([1, 0], np.int8),
    "integers for every axis": (np.array([[1], [0]]), np.array([0, 2]), 3),
    "integers apart": (np.array([1, 0]), slice(None), np.array([0, 2])),
    "integers in the middle": (slice(None), np.array([2, 0]), np.array([1, -1])),
    "no integers": np.zeros(0, np.int64),
    "a list": [1, 1, 0],
    "nothing": (),
}
