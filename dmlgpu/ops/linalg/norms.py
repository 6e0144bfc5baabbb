"""Norms of vectors and matrices, and condition numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.common.coercion import argument, as_index, boolean
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops.linalg.decompositions import values_of
from dmlgpu.ops.linalg.operands import matrices
from dmlgpu.ops.linalg.systems import inverse_of
from dmlgpu.ops.precision import in_float32, result_in, result_type
from dmlgpu.ops.reductions import Axes, reduced
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, widened
from dmlgpu.tensors.layout import checked_axes
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import is_number

__all__ = ["cond", "matrix_norm", "norm", "vector_norm"]

_FUNCTIONS = {1.0: ReduceFunction.L1, 2.0: ReduceFunction.L2}


def vector_norms(x: Tensor, order: float, axes: Sequence[int], keepdims: bool) -> Tensor:
    """Return p-norms of floating-point tensors along axes."""
    if not x.ndim:
        return abs(x) if order else (x != 0).astype(x.data_type)
    if not x.size:
        return reduced(x, ReduceFunction.SUM, axes, keepdims, 0.0 if order >= 0 else math.inf)
    if order in _FUNCTIONS:
        return reduced(x, _FUNCTIONS[order], axes, keepdims)
    if order == 0:
        return reduced((x != 0).astype(x.data_type), ReduceFunction.SUM, axes, keepdims)
    if math.isinf(order):
        return reduced(abs(x), ReduceFunction.MAX if order > 0 else ReduceFunction.MIN, axes, keepdims)
    sums: Any = reduced(abs(widened(x)) ** order, ReduceFunction.SUM, axes, keepdims)
    norms: Tensor = sums ** (1 / order)
    return norms.astype(x.data_type)


@eager
def vector_norm(
    x: Operand, *, axis: Axes = None, keepdims: bool = False, ord: float = 2, device: Where = None
) -> Array:
    """Return the norms of vectors along axes.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 0 to 8.
        axis: Axis or axes of the vectors; negative axes count from the end. Defaults to None, all axes.
        keepdims: Whether these axes stay, with size 1; defaults to False.
        ord: Order p of the norm, ``sum(abs(x)**p)**(1/p)``; 2 by default. inf is the largest magnitude, -inf the
            smallest, 0 the number of elements other than 0.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor without the axes, float16 if `x` is, else float32 (an array if `x` is one). Without elements 0, inf if
        `ord` is negative.

    Raises:
        InvalidArgument: If an axis is out of range, or `ord` is not a number.

    Examples:
        >>> ops.linalg.vector_norm([[3.0, 4.0], [5.0, 12.0]], axis=1)
        array([ 5., 13.], dtype=float32)

    See also:
        `norm`, `matrix_norm`.

    Computed in float32 by REDUCE (`ns-directml-dml_reduce_operator_desc`).
    """
    return result_in(result_type(x), _vector_norm(in_float32("x", x), ord, axis, keepdims))


def _vector_norm(x: Tensor, order: Any, axis: Axes, keepdims: Any) -> Tensor:
    if not is_number(order) or isinstance(order, bool) or math.isnan(order):
        raise InvalidArgument(f"{caller()}: ord must be a number for norms of vectors, got {shown(order)}")
    axes = tuple(range(x.ndim)) if axis is None else checked_axes(caller(), "axis", axis, x.ndim)
    return vector_norms(x, float(order), axes, argument(caller(), "keepdims", boolean, keepdims))


@eager
def matrix_norm(x: Operand, *, keepdims: bool = False, ord: float | str = "fro", device: Where = None) -> Array:
    """Return the norms of matrices.

    Args:
        x: Tensor or array {..., M, N} of float32, float16 or integers.
        keepdims: Whether the last two axes stay, with size 1; defaults to False.
        ord: ``"fro"``, the default, for the root of the sum of squares; ``"nuc"`` for the sum of the singular values; 2
            and -2 for the largest and the smallest of these; 1 and -1 for the largest and the smallest sum of
            magnitudes of a column, inf and -inf of a row.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {...}, float16 if `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, `ord` is none of these, or a matrix has no elements to
            choose from.

    Examples:
        >>> float(ops.linalg.matrix_norm([[3.0, 0.0], [0.0, -4.0]]))
        5.0
        >>> float(ops.linalg.matrix_norm([[3.0, 0.0], [0.0, -4.0]], ord="nuc"))
        7.0

    See also:
        `norm`, `vector_norm`, `cond`.

    Computed in float32 by REDUCE (`ns-directml-dml_reduce_operator_desc`), of singular values as by `svd`.
    """
    return result_in(result_type(x), _matrix_norm(matrices("x", x), ord, keepdims))


_ORDERS = (1, -1, 2, -2, math.inf, -math.inf)


def _matrix_norm(a: Tensor, order: Any, keepdims: Any) -> Tensor:
    keepdims = argument(caller(), "keepdims", boolean, keepdims)
    if isinstance(order, str) and order == "fro":
        return reduced(a, ReduceFunction.L2, (-2, -1), keepdims)
    is_nuclear = isinstance(order, str) and order == "nuc"
    if not is_nuclear and not (is_number(order) and not isinstance(order, bool) and order in _ORDERS):
        raise InvalidArgument(
            f"{caller()}: ord must be 'fro', 'nuc', 1, -1, 2, -2, inf or -inf for norms of matrices, got {shown(order)}"
        )
    if is_nuclear or abs(order) == 2:
        extremes = {True: ReduceFunction.MAX, False: ReduceFunction.MIN}
        choice = ReduceFunction.SUM if is_nuclear else extremes[order > 0]
        empty_value = 0.0 if choice is not ReduceFunction.MIN else None
        norms = reduced(values_of(a), choice, -1, keepdims, empty_value)
        return norms.expand_dims(-1) if keepdims else norms
    summed, rest = (-1, -2) if math.isinf(order) else (-2, -1)
    sums = reduced(a, ReduceFunction.L1, summed, True, 0.0)
    choice = ReduceFunction.MAX if order > 0 else ReduceFunction.MIN
    norms = reduced(sums, choice, rest, True, 0.0 if order > 0 else None)
    return norms if keepdims else norms.squeeze((-2, -1))


@eager
def norm(
    x: Operand,
    ord: float | str | None = None,
    axis: Axes = None,
    keepdims: bool = False,
    *,
    device: Where = None,
) -> Array:
    """Return norms of vectors or matrices, as NumPy's function of this name.

    Args:
        x: Tensor or array of float32, float16 or integers, rank 0 to 8.
        ord: Order of the norm: that of `vector_norm` for vectors, of `matrix_norm` for matrices. Defaults to None, the
            root of the sum of squares.
        axis: Axis of vectors, or the two axes of matrices, rows first. Defaults to None: all of `x`, which has 1 or 2
            dimensions if there is an `ord`.
        keepdims: Whether these axes stay, with size 1; defaults to False.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor without the axes, float16 if `x` is, else float32 (an array if `x` is one).

    Raises:
        InvalidArgument: If axes are out of range or more than two, or `ord` does not fit.

    Examples:
        >>> float(ops.linalg.norm([3.0, 4.0]))
        5.0
        >>> ops.linalg.norm([[1.0, -2.0], [3.0, 4.0]], ord=1, axis=0)
        array([4., 6.], dtype=float32)

    See also:
        `vector_norm`, `matrix_norm`, `dmlgpu.ops.norm`.

    Computed in float32 by REDUCE (`ns-directml-dml_reduce_operator_desc`), of singular values as by `svd`.
    """
    values = in_float32("x", x)
    if axis is None and (ord is None or values.ndim == 1):
        return result_in(result_type(x), _vector_norm(values, 2 if ord is None else ord, None, keepdims))
    if axis is None and values.ndim != 2:
        raise InvalidArgument(
            f"{caller()}: x must have 1 or 2 dimensions if there is an ord and no axis, got {values.ndim}"
        )
    axes = (0, 1) if axis is None else checked_axes(caller(), "axis", axis, values.ndim)
    if len(axes) == 1 or as_index(axis) is not None:
        return result_in(result_type(x), _vector_norm(values, 2 if ord is None else ord, axes, keepdims))
    if len(axes) != 2:
        raise InvalidArgument(f"{caller()}: axis must be one axis or two, got {shown(axis)}")
    others = [i for i in range(values.ndim) if i not in axes]
    norms = _matrix_norm(values.transpose(*others, *axes), "fro" if ord is None else ord, keepdims)
    if keepdims:
        norms = norms.reshape([1 if i in axes else size for i, size in enumerate(values.sizes)])
    return result_in(result_type(x), norms)


@eager
def cond(x: Operand, p: float | str | None = None, *, device: Where = None) -> Array:
    """Return the condition numbers of matrices.

    Args:
        x: Tensor or array {..., M, N} of float32, float16 or integers, with elements; square unless `p` is None, 2 or
            -2.
        p: Order of the norm of `matrix_norm`; defaults to None, 2: the largest singular value by the smallest.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {...}, float16 if `x` is, else float32 (an array if `x` is one); inf or NaN for singular matrices.

    Raises:
        InvalidArgument: If `x` is not such matrices, or `p` is no order.

    Examples:
        >>> float(ops.linalg.cond([[8.0, 0.0], [0.0, 2.0]]))
        4.0

    See also:
        `matrix_norm`, `svdvals`.

    Computed in float32 from singular values, as by `svd`, or the inverse, as by `inv`.
    """
    a = matrices("x", x)
    if 0 in a.sizes[-2:]:
        raise InvalidArgument(f"{caller()}: x must be matrices with elements, got sizes {list(a.sizes)}")
    if p is None or (is_number(p) and abs(p) == 2):
        largest, smallest = (_matrix_norm(a, order, False) for order in ((2, -2) if p is None or p > 0 else (-2, 2)))
        return result_in(result_type(x), largest / smallest)
    if a.sizes[-1] != a.sizes[-2]:
        raise InvalidArgument(f"{caller()}: x must be square matrices, got sizes {list(a.sizes)}")
    return result_in(result_type(x), _matrix_norm(a, p, False) * _matrix_norm(inverse_of(a), p, False))
