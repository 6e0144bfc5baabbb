"""Diagonals of matrices, under NumPy's names: diag, diagonal, trace."""

from __future__ import annotations

from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.common.coercion import argument, integer
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops.creation import diagonals
from dmlgpu.ops.reductions import reduced, summable
from dmlgpu.ops.shape import pad
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, filled, tensor_of
from dmlgpu.tensors.layout import checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike

__all__ = ["diag", "diagonal", "trace"]


@eager
def diag(x: Operand, k: int = 0, *, device: Where = None) -> Array:
    """Return a matrix with a row on a diagonal, or the diagonal of a matrix.

    Args:
        x: Tensor or array of any dtype, rank 1 for a matrix, rank 2 for its diagonal.
        k: Diagonal: 0, the default, is the main one, positive ones lie above it.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of the dtype of `x` (an array if `x` is one): a square matrix with zeros elsewhere, or a view of the
        diagonal.

    Raises:
        InvalidArgument: If `x` does not have rank 1 or 2.

    Examples:
        >>> ops.diag([1, 2])
        array([[1, 0],
               [0, 2]])
        >>> ops.diag([[1, 2], [3, 4]])
        array([1, 4])

    See also:
        `diagonal`, `trace`, `eye`.

    Computed by FILL_VALUE_SEQUENCE (`ns-directml-dml_fill_value_sequence_operator_desc`) and ELEMENT_WISE_IF
    (`ns-directml-dml_element_wise_if_operator_desc`).
    """
    tensor, offset = tensor_of("x", x), argument(caller(), "k", integer, k)
    if tensor.ndim == 2:
        return diagonal_of(tensor, offset, 0, 1)
    if tensor.ndim != 1:
        raise InvalidArgument(f"{caller()}: x must have 1 or 2 dimensions, got {tensor.ndim}")
    extent = tensor.size + abs(offset)
    if not tensor.size:
        return filled(tensor, (extent, extent))._same(boolean=tensor.is_boolean)
    rows = pad(tensor._same(boolean=False), (max(-offset, 0), max(offset, 0))).expand_dims(1)
    matrix: Tensor = rows._chosen(diagonals((extent, extent), tensor.device) == offset, 0)
    return matrix._same(boolean=tensor.is_boolean)


@eager
def diagonal(x: Operand, offset: int = 0, axis1: int = 0, axis2: int = 1, *, device: Where = None) -> Array:
    """Return a view of the diagonals of matrices, as the last axis.

    No operator runs.

    Args:
        x: Tensor or array of any dtype, rank 2 to 8.
        offset: Diagonal: 0, the default, is the main one, positive ones lie above it.
        axis1: Axis of the rows of the matrices; defaults to 0.
        axis2: Axis of their columns; defaults to 1.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        View of `x` without the two axes, with the diagonal as the last one (a new array if `x` is an array).

    Raises:
        InvalidArgument: If `x` has fewer than 2 axes, or an axis is out of range or named twice.

    Examples:
        >>> ops.diagonal([[1, 2], [3, 4]], 1)
        array([2])

    See also:
        `diag`, `trace`, `einsum`.
    """
    return diagonal_of(tensor_of("x", x), argument(caller(), "offset", integer, offset), axis1, axis2)


@eager
def trace(
    x: Operand,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: TypeLike | None = None,
    *,
    device: Where = None,
) -> Array:
    """Return the sums of the diagonals of matrices.

    Args:
        x: Tensor or array of bool, float32, float16 or integers, rank 2 to 8.
        offset: Diagonal: 0, the default, is the main one, positive ones lie above it.
        axis1: Axis of the rows of the matrices; defaults to 0.
        axis2: Axis of their columns; defaults to 1.
        dtype: Dtype in which elements are accumulated; defaults to None: the dtype of floating-point elements, int64
            for booleans and signed integers, uint64 for unsigned ones.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor of that dtype without the two axes (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 axes, or an axis is out of range or named twice.

    Examples:
        >>> ops.trace([[1, 2], [3, 4]])
        array(5)

    See also:
        `diagonal`, `sum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with SUM.
    """
    view = diagonal_of(tensor_of("x", x), argument(caller(), "offset", integer, offset), axis1, axis2)
    return reduced(summable(view, dtype), ReduceFunction.SUM, -1, False)


def diagonal_of(x: Tensor, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Tensor:
    """Return a view of the diagonals, whose stride is that of a step along both axes."""
    if x.ndim < 2:
        raise InvalidArgument(f"{caller()}: x must have at least 2 dimensions, got {x.ndim}")
    row, column = (checked_axis(caller(), f"axis{n}", axis, x.ndim) for n, axis in ((1, axis1), (2, axis2)))
    if row == column:
        raise InvalidArgument(f"{caller()}: axis1 and axis2 must differ, got {axis1} and {axis2}")
    start_row, start_column = max(-offset, 0), max(offset, 0)
    length = max(min(x.sizes[row] - start_row, x.sizes[column] - start_column), 0)
    start = start_row * x.strides[row] + start_column * x.strides[column] if length else 0
    others = [axis for axis in range(x.ndim) if axis not in (row, column)]
    sizes = tuple(x.sizes[axis] for axis in others)
    strides = tuple(x.strides[axis] for axis in others)
    return x._view((*sizes, length), (*strides, x.strides[row] + x.strides[column]), start)
