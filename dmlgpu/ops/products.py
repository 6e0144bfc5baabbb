"""Products of tensors over chosen axes, under NumPy's names: tensordot, dot, inner, outer, kron, vecdot.

Integers are multiplied and added in their own dtype.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from dmlgpu.catalog.enums import ReduceFunction
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.coercion import as_index
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.ops.reductions import reduced
from dmlgpu.tensors.calls import Array, Operand, Where, caller, eager, tensor_of, widened
from dmlgpu.tensors.layout import broadcast_sizes, checked_axes
from dmlgpu.tensors.tensor import Tensor, matmul
from dmlgpu.tensors.types import promoted

__all__ = ["dot", "inner", "kron", "outer", "tensordot", "vecdot"]


def _two(**operands: Any) -> list[Tensor]:
    """Return two operands in their common dtype."""
    tensors = {name: tensor_of(name, value) for name, value in operands.items()}
    return promoted(caller(), tensors)


@eager
def tensordot(a: Operand, b: Operand, axes: int | Sequence[int | Sequence[int]] = 2, *, device: Where = None) -> Array:
    """Return the sum of products over axes of both tensors.

    Args:
        a: Tensor or array of bool, float32, float16 or integers.
        b: Likewise, promoted with `a` to a common dtype.
        axes: Number of the last axes of `a` and the first of `b`, or a pair of axes or of sequences of axes; defaults
            to 2.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor with the other axes of `a`, then those of `b` (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, axes are out of range or differ in size, or more than 8 remain.

    Examples:
        >>> ops.tensordot(np.ones((2, 3), np.float32), np.ones((3, 2), np.float32), axes=1)
        array([[3., 3.],
               [3., 3.]], dtype=float32)

    See also:
        `matmul`, `einsum`, `inner`, `outer`.

    Computed by GEMM (`ns-directml-dml_gemm_operator_desc`) for floating-point dtypes.
    """
    first, second = _two(a=a, b=b)
    return contracted(first, second, axes)


def contracted(a: Tensor, b: Tensor, axes: Any) -> Tensor:
    """Return the sum of products over axes of two tensors of one dtype; see ``tensordot``."""
    count = as_index(axes)
    if count is not None:
        if not 0 <= count <= min(a.ndim, b.ndim):
            raise InvalidArgument(f"{caller()}: axes must be between 0 and {min(a.ndim, b.ndim)}, got {shown(axes)}")
        left, right = tuple(range(a.ndim - count, a.ndim)), tuple(range(count))
    else:
        if not isinstance(axes, list | tuple) or len(axes) != 2:
            raise InvalidArgument(f"{caller()}: axes must be an integer or a pair of sequences, got {shown(axes)}")
        left = checked_axes(caller(), "axes[0]", axes[0], a.ndim)
        right = checked_axes(caller(), "axes[1]", axes[1], b.ndim)
    shared = tuple(a.sizes[axis] for axis in left)
    if shared != tuple(b.sizes[axis] for axis in right):
        raise InvalidArgument(
            f"{caller()}: axes must have equal sizes in both operands, got {list(shared)} and "
            f"{[b.sizes[axis] for axis in right]}"
        )
    rows = [axis for axis in range(a.ndim) if axis not in left]
    columns = [axis for axis in range(b.ndim) if axis not in right]
    sizes = tuple(a.sizes[axis] for axis in rows) + tuple(b.sizes[axis] for axis in columns)
    if len(sizes) > MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller()}: axes must leave at most {MAX_DIMENSIONS} dimensions, got {len(sizes)}")
    extent = math.prod(shared)
    height, width = math.prod(a.sizes[axis] for axis in rows), math.prod(b.sizes[axis] for axis in columns)
    first = a.transpose((*rows, *left)).reshape(height, extent) if a.ndim else a.reshape(1, 1)
    second = b.transpose((*right, *columns)).reshape(extent, width) if b.ndim else b.reshape(1, 1)
    return matmul(first, second, caller())._renamed(sizes)


@eager
def dot(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the sum of products over the last axis of `a` and the last but one of `b`.

    Of vectors it is the inner product, of matrices their product. A scalar multiplies the other operand.

    Args:
        a: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        b: Likewise, promoted with `a` to a common dtype.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor with the other axes of `a`, then those of `b` (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, the axes differ in size, or more than 8 remain.

    Examples:
        >>> ops.dot([1, 2], [3, 4])
        array(11)

    See also:
        `matmul`, whose leading axes broadcast; `inner`, `vecdot`.

    Computed by GEMM (`ns-directml-dml_gemm_operator_desc`) for floating-point dtypes.
    """
    first, second = _two(a=a, b=b)
    if not (first.ndim and second.ndim):
        return first * second
    return contracted(first, second, ((-1,), (-1 if second.ndim == 1 else -2,)))


@eager
def inner(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the sum of products over the last axes of both tensors.

    A scalar multiplies the other operand.

    Args:
        a: Tensor or array of bool, float32, float16 or integers, rank 0 to 8.
        b: Likewise, promoted with `a` to a common dtype.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor with the other axes of `a`, then those of `b` (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, the axes differ in size, or more than 8 remain.

    Examples:
        >>> ops.inner([[1, 2], [3, 4]], [1, 10])
        array([21, 43])

    See also:
        `dot`, `vecdot`, `outer`.

    Computed by GEMM (`ns-directml-dml_gemm_operator_desc`) for floating-point dtypes.
    """
    first, second = _two(a=a, b=b)
    if not (first.ndim and second.ndim):
        return first * second
    return contracted(first, second, ((-1,), (-1,)))


@eager
def outer(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the product of each element of `a` with each of `b`.

    Args:
        a: Tensor or array of bool, float32, float16 or integers, read as if it had one axis.
        b: Likewise, promoted with `a` to a common dtype.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor {a.size, b.size} (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype.

    Examples:
        >>> ops.outer([1, 2], [3, 4, 5])
        array([[ 3,  4,  5],
               [ 6,  8, 10]])

    See also:
        `inner`, `kron`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    first, second = _two(a=a, b=b)
    return first.reshape(-1, 1) * second.reshape(1, -1)


@eager
def kron(a: Operand, b: Operand, *, device: Where = None) -> Array:
    """Return the Kronecker product: blocks of `b`, each multiplied by an element of `a`.

    Args:
        a: Tensor or array of bool, float32, float16 or integers, rank 0 to 4.
        b: Likewise, promoted with `a` to a common dtype. Missing leading axes have size 1.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor whose sizes are the products of those of `a` and `b` (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, or an operand has more than 4 axes.

    Examples:
        >>> ops.kron([1, 10], [1, 2, 3])
        array([ 1,  2,  3, 10, 20, 30])

    See also:
        `outer`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`).
    """
    first, second = _two(a=a, b=b)
    rank = max(first.ndim, second.ndim)
    if 2 * rank > MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller()}: a and b must have at most {MAX_DIMENSIONS // 2} dimensions, got {rank}")
    outer_sizes, inner_sizes = ((1,) * (rank - x.ndim) + x.sizes for x in (first, second))
    blocks = first.reshape([part for size in outer_sizes for part in (size, 1)])
    product = blocks * second.reshape([part for size in inner_sizes for part in (1, size)])
    return product.reshape([rows * columns for rows, columns in zip(outer_sizes, inner_sizes, strict=True)])


@eager
def vecdot(x1: Operand, x2: Operand, axis: int = -1, *, device: Where = None) -> Array:
    """Return the sum of products along an axis.

    Args:
        x1: Tensor or array of bool, float32, float16 or integers.
        x2: Likewise, promoted with `x1` to a common dtype; the other axes broadcast.
        axis: Negative axis, counted from the end; defaults to -1.
        device: Device or adapter name that computes arrays; defaults to that of a tensor operand, else to the default
            device.

    Returns:
        Tensor of the broadcast shape without `axis` (an array if both operands are arrays).

    Raises:
        InvalidArgument: If there is no common dtype, the axis is out of range, or the shapes do not fit.

    Examples:
        >>> ops.vecdot([[1, 2], [3, 4]], [1, 10])
        array([21, 43])

    See also:
        `inner`, `matmul`.

    Computed by ELEMENT_WISE_MULTIPLY (`ns-directml-dml_element_wise_multiply_operator_desc`) and REDUCE
    (`ns-directml-dml_reduce_operator_desc`).
    """
    first, second = _two(x1=x1, x2=x2)
    rank = min(first.ndim, second.ndim)
    index = as_index(axis)
    if index is None or not -rank <= index <= -1:
        raise InvalidArgument(f"{caller()}: axis must be an integer between {-rank} and -1, got {shown(axis)}")
    if first.sizes[index] != second.sizes[index]:
        raise InvalidArgument(
            f"{caller()}: x1 and x2 must have equal sizes along axis, got {first.sizes[index]}, {second.sizes[index]}"
        )
    sizes = broadcast_sizes(caller(), [("x1", first.sizes), ("x2", second.sizes)])
    product = widened(first).broadcast_to(sizes) * widened(second).broadcast_to(sizes)
    if product.is_boolean:
        return reduced(product._same(boolean=False), ReduceFunction.MAX, index, False, 0)._same(boolean=True)
    return reduced(product, ReduceFunction.SUM, index, False).astype(first.data_type)
