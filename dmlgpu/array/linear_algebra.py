"""Products of matrices and vectors. Integers are multiplied and summed in their own dtype."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.array.operands import tensor
from dmlgpu.array.statistical import reduced
from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.common.coercion import as_index
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.tensors.calls import NUMERIC, caller, named, widened
from dmlgpu.tensors.layout import broadcast_sizes, checked_axes
from dmlgpu.tensors.tensor import Tensor
from dmlgpu.tensors.types import promoted

__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]


def _two(x1: Any, x2: Any) -> list[Tensor]:
    return promoted(caller(), {"x1": tensor("x1", x1, NUMERIC), "x2": tensor("x2", x2, NUMERIC)})


@named
def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """Return the product of matrices, or of stacks of matrices.

    Args:
        x1: Tensor {..., M, K}, or a vector {K}, which is a row.
        x2: Tensor {..., K, N}, or a vector {K}, which is a column. The leading axes broadcast.

    Returns:
        Tensor {..., M, N} of the common dtype, logical of masks; M or N is absent if an operand is a vector.

    Raises:
        InvalidArgument: If an operand is a scalar, there is no common dtype, or the shapes do not fit.

    Examples:
        >>> xp.matmul(xp.asarray([[1, 2], [3, 4]]), xp.asarray([1, 1])).tolist()
        [3, 7]

    See also:
        `dmlgpu.ops.matmul`, `tensordot`.
    """
    return tensor("x1", x1) @ tensor("x2", x2)


@named
def matrix_transpose(x: Tensor, /) -> Tensor:
    """Return a view with the last two axes exchanged.

    Args:
        x: Tensor of rank 2 to 8.

    Returns:
        View of `x`.

    Raises:
        InvalidArgument: If `x` has fewer than 2 axes.

    Examples:
        >>> xp.matrix_transpose(xp.asarray([[1, 2], [3, 4]])).tolist()
        [[1, 3], [2, 4]]

    See also:
        `permute_dims`, `Tensor.mT`.
    """
    return tensor("x", x).mT


@named
def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Return the sum of products over axes of both tensors.

    Args:
        x1: Tensor of a numeric dtype.
        x2: Tensor, promoted with `x1` to a common dtype.
        axes: Number of the last axes of `x1` and the first of `x2`, or a pair of sequences of axes; defaults to 2.

    Returns:
        Tensor with the other axes of `x1`, then those of `x2`.

    Raises:
        InvalidArgument: If there is no common dtype, axes are out of range or differ in size, or more than 8 remain.

    Examples:
        >>> xp.tensordot(xp.ones((2, 3)), xp.ones((3, 2)), axes=1).tolist()
        [[3.0, 3.0], [3.0, 3.0]]

    See also:
        `matmul`, `vecdot`.
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
    """Return the sum of products along an axis.

    Args:
        x1: Tensor of a numeric dtype.
        x2: Tensor, promoted with `x1` to a common dtype; the other axes broadcast.
        axis: Negative axis, counted from the end; defaults to -1.

    Returns:
        Tensor of the broadcast shape without `axis`.

    Raises:
        InvalidArgument: If there is no common dtype, the axis is out of range, or the shapes do not fit.

    Examples:
        >>> xp.vecdot(xp.asarray([1, 2]), xp.asarray([3, 4])).tolist()
        11

    See also:
        `matmul`.
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
    product: Tensor = widened(first).broadcast_to(sizes) * widened(second).broadcast_to(sizes)
    return reduced(product, ReduceFunction.SUM, number, False).astype(first.data_type)
