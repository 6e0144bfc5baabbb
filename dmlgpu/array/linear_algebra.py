"""Products of matrices and vectors. Integers are multiplied and summed in their own dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dmlgpu import ops
from dmlgpu.array.operands import tensor
from dmlgpu.ops.products import contracted
from dmlgpu.tensors.calls import NUMERIC, caller, named
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
    return contracted(first, second, axes)


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
    return ops.vecdot(first, second, axis)
