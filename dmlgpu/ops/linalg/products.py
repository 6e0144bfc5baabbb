"""Products of vectors, and diagonals of matrices."""

from __future__ import annotations

import numpy as np

from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.common.coercion import argument, integer
from dmlgpu.common.errors import InvalidArgument
from dmlgpu.ops.diagonals import diagonal_of
from dmlgpu.ops.reductions import reduced, summable
from dmlgpu.tensors.calls import NUMERIC, Array, Operand, Where, caller, check_kind, eager, filled, tensor_of
from dmlgpu.tensors.layout import broadcast_sizes, checked_axis
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import TypeLike, promoted

__all__ = ["cross", "diagonal", "outer", "trace"]


@eager
def cross(a: Operand, b: Operand, axis: int = -1, *, device: Where = None) -> Array:
    """Return the cross products of vectors of three elements.

    Args:
        a: Tensor or array of numbers, of size 3 along `axis`.
        b: Tensor or array of numbers, of size 3 along `axis`; the other axes broadcast.
        axis: Axis of the vectors; negative axes count from the end. Defaults to the last axis.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the common dtype and the broadcast shape (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, sizes do not fit, or the axis is out of range.

    Examples:
        >>> ops.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
        array([0., 0., 1.], dtype=float32)

    See also:
        `outer`, `dmlgpu.ops.matmul`.

    Computed by GATHER (`ns-directml-dml_gather_operator_desc`), ELEMENT_WISE_MULTIPLY
    (`ns-directml-dml_element_wise_multiply_operator_desc`) and ELEMENT_WISE_SUBTRACT
    (`ns-directml-dml_element_wise_subtract_operator_desc`).
    """
    first, second = check_kind("a", tensor_of("a", a), NUMERIC), check_kind("b", tensor_of("b", b), NUMERIC)
    first, second = promoted(caller(), {"a": first, "b": second})
    for name, x in (("a", first), ("b", second)):
        index = checked_axis(caller(), "axis", axis, x.ndim)
        if x.sizes[index] != 3:
            raise InvalidArgument(f"{caller()}: {name} must have size 3 along axis, got sizes {list(x.sizes)}")
    sizes = broadcast_sizes(caller(), [("a", first.sizes), ("b", second.sizes)])
    index = checked_axis(caller(), "axis", axis, len(sizes))
    if sizes[index] != 3:
        raise InvalidArgument(f"{caller()}: axis must be the same one of both operands, got sizes {list(sizes)}")
    return crossed(first.broadcast_to(sizes), second.broadcast_to(sizes), index)


def crossed(a: Tensor, b: Tensor, axis: int) -> Tensor:
    """Return cross products along an axis of size 3."""
    if not a.size:
        return filled(a, a.sizes)
    next_axis, last_axis = (a._beside(np.array(order, np.int32)) for order in ([1, 2, 0], [2, 0, 1]))

    def turned(x: Tensor, order: Tensor) -> Tensor:
        return x._taken(order, axis, caller())

    return turned(a, next_axis) * turned(b, last_axis) - turned(a, last_axis) * turned(b, next_axis)


@eager
def outer(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the outer product of two vectors: every element of `a` times every element of `b`.

    Args:
        a: Tensor or array {M} of numbers.
        b: Tensor or array {N} of numbers.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {M, N} of the common dtype (an array if both operands are arrays).

    Raises:
        InvalidArgument: If an operand is not a vector of numbers, or there is no common dtype.

    Examples:
        >>> ops.linalg.outer([1.0, 2.0], [3.0, 4.0])
        array([[3., 4.],
               [6., 8.]], dtype=float32)

    See also:
        `cross`, `dmlgpu.ops.einsum`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    first, second = check_kind("a", tensor_of("a", a), NUMERIC), check_kind("b", tensor_of("b", b), NUMERIC)
    for name, x in (("a", first), ("b", second)):
        if x.ndim != 1:
            raise InvalidArgument(f"{caller()}: {name} must be a vector, got sizes {list(x.sizes)}")
    first, second = promoted(caller(), {"a": first, "b": second})
    return first.expand_dims(1) * second.expand_dims(0)


@eager
def diagonal(x: Operand, *, offset: int = 0, device: Where = None) -> Array:
    """Return a view of a diagonal of matrices.

    Args:
        x: Tensor or array {..., M, N}.
        offset: Diagonal: 0 is the main one, positive ones lie above it; defaults to 0.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        View {..., K} of the diagonal's elements (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, or `offset` is not an integer.

    Examples:
        >>> ops.linalg.diagonal([[1, 2], [3, 4]])
        array([1, 4])

    See also:
        `trace`.
    """
    return diagonal_of(tensor_of("x", x), argument(caller(), "offset", integer, offset))


@eager
def trace(x: Operand, *, offset: int = 0, dtype: TypeLike | None = None, device: Where = None) -> Array:
    """Return the sums of a diagonal of matrices.

    Args:
        x: Tensor or array {..., M, N} of numbers or booleans.
        offset: Diagonal: 0 is the main one, positive ones lie above it; defaults to 0.
        dtype: Dtype in which elements are accumulated; defaults to None: the dtype of floating-point elements, int64
            for booleans and signed integers, uint64 for unsigned ones.
        device: Device or adapter name that computes arrays; defaults to that of `x`, else to the default device.

    Returns:
        Tensor {...} of that dtype (an array if `x` is one).

    Raises:
        InvalidArgument: If `x` has fewer than 2 dimensions, `offset` is not an integer, or `dtype` is not numeric.

    Examples:
        >>> ops.linalg.trace([[1, 2], [3, 4]])
        array(5)

    See also:
        `diagonal`, `dmlgpu.ops.sum`.

    Computed by REDUCE (`ns-directml-dml_reduce_operator_desc`) with SUM.
    """
    view = diagonal_of(tensor_of("x", x), argument(caller(), "offset", integer, offset))
    return reduced(summable(view, dtype), ReduceFunction.SUM, -1, False)
