"""Products of matrices and vectors. Integers are multiplied and summed in their own dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.array.operands import NUMERIC, tensor
from dmlgpu.array.statistical import reduced
from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.common.coercion import as_index
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.tensors.calls import caller, named
from dmlgpu.tensors.layout import broadcast_sizes, checked_axes
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import promoted

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def _two(x1: Any, x2: Any) -> list[Tensor]:
    return promoted(caller(), {"x1": tensor("x1", x1, NUMERIC), "x2": tensor("x2", x2, NUMERIC)})


@named
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the product of matrices, or of stacks of matrices, which broadcast.

    A vector is a row on the left and a column on the right; the result lacks its axis.

    Raises:
        InvalidArgument: If an operand is a scalar, there is no common dtype, or shapes do not fit.
    """
    first, second = _two(x1, x2)
    return first @ second


@named
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return a view with the last two axes exchanged.

    Raises:
        InvalidArgument: If `x` has fewer than two axes.
    """
    return tensor("x", x).mT


@named
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sum of products over axes of both arrays; the result has the other axes, in order.

    Args:
        x1, x2: Tensors of a numeric dtype.
        axes: Number of the last axes of `x1` and the first of `x2`, or the axes of each.

    Raises:
        InvalidArgument: If there is no common dtype, axes are out of range or differ in size, or more than 8 remain.
    """
    first, second = _two(x1, x2)
    count = as_index(axes)
    if count is not None:
        if not 0 <= count <= min(first.ndim, second.ndim):
            raise InvalidArgument(
                f"{caller()}: axes must be between 0 and {min(first.ndim, second.ndim)}, got {shown(axes)}"
            )
        left, right = tuple(range(first.ndim - count, first.ndim)), tuple(range(count))
    else:
        if not isinstance(axes, list | tuple) or len(axes) != 2:
            raise InvalidArgument(f"{caller()}: axes must be an integer or a pair of sequences, got {shown(axes)}")
        left = checked_axes(caller(), "axes[0]", axes[0], first.ndim)
        right = checked_axes(caller(), "axes[1]", axes[1], second.ndim)
    shared = tuple(first.sizes[axis] for axis in left)
    if shared != tuple(second.sizes[axis] for axis in right):
        raise InvalidArgument(
            f"{caller()}: axes must have equal sizes in both, got {list(shared)} of x1 and "
            f"{[second.sizes[axis] for axis in right]} of x2"
        )
    rows = [axis for axis in range(first.ndim) if axis not in left]
    columns = [axis for axis in range(second.ndim) if axis not in right]
    sizes = tuple(first.sizes[axis] for axis in rows) + tuple(second.sizes[axis] for axis in columns)
    if len(sizes) > 8:
        raise InvalidArgument(f"{caller()}: axes must leave at most 8 dimensions, got {len(sizes)}")
    extent = math.prod(shared)
    height, width = math.prod(first.sizes[axis] for axis in rows), math.prod(second.sizes[axis] for axis in columns)
    a = first.transpose((*rows, *left)).reshape(height, extent) if first.ndim else first.reshape(1, 1)
    b = second.transpose((*right, *columns)).reshape(extent, width) if second.ndim else second.reshape(1, 1)
    result: Tensor = a @ b
    return result._renamed(sizes)


@named
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the sum of products along an axis; the others broadcast.

    Args:
        x1, x2: Tensors of a numeric dtype.
        axis: Negative axis, counted from the end.

    Raises:
        InvalidArgument: If there is no common dtype, the axis is out of range, or shapes do not fit.
    """
    first, second = _two(x1, x2)
    rank = min(first.ndim, second.ndim)
    number = as_index(axis)
    if number is None or not -rank <= number <= -1:
        raise InvalidArgument(f"{caller()}: axis must be an integer between {-rank} and -1, got {shown(axis)}")
    if first.sizes[number] != second.sizes[number]:
        raise InvalidArgument(
            f"{caller()}: x1 and x2 must have equal sizes along axis, got {first.sizes[number]}, {second.sizes[number]}"
        )
    sizes = broadcast_sizes(caller(), [("x1", first.sizes), ("x2", second.sizes)])
    product: Tensor = first.broadcast_to(sizes) * second.broadcast_to(sizes)
    return reduced(product, ReduceFunction.SUM, number, False)
