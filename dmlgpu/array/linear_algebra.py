"""Products of matrices and vectors. Integers are multiplied and added up in their own type."""

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
from dmlgpu.tensors.promotion import promoted
from dmlgpu.tensors.tensor import Tensor

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def _two(x1: Any, x2: Any) -> list[Tensor]:
    return promoted(caller(), {"x1": tensor("x1", x1, NUMERIC), "x2": tensor("x2", x2, NUMERIC)})


@named
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the product of matrices, or stacks of them that broadcast; a vector is a row on the left, a column on the
    right, and its dimension is left out of the result.

    Raises:
        InvalidArgument: scalars, no common type, inner sizes that differ, or stacks that do not broadcast.
    """
    first, second = _two(x1, x2)
    return first @ second


@named
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return the view with the last two dimensions exchanged.

    Raises:
        InvalidArgument: fewer than two dimensions.
    """
    return tensor("x", x).mT


@named
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sum of products over axes of both arrays; the others follow one another.

    Args:
        x1, x2: numbers.
        axes: how many of the last of x1 and the first of x2, or which of each.

    Raises:
        InvalidArgument: no common type, axes out of range or of different sizes, or more than 8 dimensions.
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
    height, width = (math.prod(one.sizes[axis] for axis in part) for one, part in ((first, rows), (second, columns)))
    a = first.transpose((*rows, *left)).reshape(height, extent) if first.ndim else first.reshape(1, 1)
    b = second.transpose((*right, *columns)).reshape(extent, width) if second.ndim else second.reshape(1, 1)
    found: Tensor = a @ b
    return found._renamed(sizes)


@named
def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return the sum of products along an axis; other dimensions broadcast.

    Args:
        x1, x2: numbers.
        axis: along which, counted from the back.

    Raises:
        InvalidArgument: no common type, an axis out of range, or sizes that differ or do not broadcast.
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
    return reduced(product, ReduceFunction.SUM, number, False, 0)
