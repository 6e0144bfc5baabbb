"""Functions of ``dmlgpu.ops`` as methods of `Tensor`, under NumPy's and PyTorch's names."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dmlgpu.tensors.keywords import ALIASED, takes_aliases

if TYPE_CHECKING:
    from dmlgpu.tensors.calls import Operand
    from dmlgpu.tensors.tensor import Tensor


def ops() -> Any:
    """Return ``dmlgpu.ops``, imported late because it is built on tensors."""
    return importlib.import_module("dmlgpu.ops")


class Methods:
    """Methods of `Tensor` that are functions of ``dmlgpu.ops``, which list the dtypes."""

    __slots__ = ()

    def sum(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the sum of elements along axes.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Tensor of the same dtype without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range, or the dtype is not supported.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
            [4, 6]

        See also:
            `dmlgpu.ops.sum`, which lists the dtypes.
        """
        return ops().sum(self, axis, keepdims)

    def mean(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the mean of elements along axes.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Tensor of the same floating-point dtype, or float32, without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range.

        Examples:
            >>> Tensor([[1.0, 2.0], [3.0, 4.0]]).mean(axis=0).tolist()
            [2.0, 3.0]

        See also:
            `dmlgpu.ops.mean`.
        """
        return ops().mean(self, axis, keepdims)

    def prod(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the product of elements along axes.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Tensor of the same dtype without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range, or the dtype is not supported.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).prod(axis=0).tolist()
            [3, 8]

        See also:
            `dmlgpu.ops.prod`, which lists the dtypes.
        """
        return ops().prod(self, axis, keepdims)

    def max(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the largest element along axes.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Tensor of the same dtype without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range, or the dtype is not supported.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).max(axis=0).tolist()
            [3, 4]

        See also:
            `dmlgpu.ops.max`, which lists the dtypes.
        """
        return ops().max(self, axis, keepdims)

    def min(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return the smallest element along axes.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Tensor of the same dtype without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range, or the dtype is not supported.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).min(axis=0).tolist()
            [1, 2]

        See also:
            `dmlgpu.ops.min`, which lists the dtypes.
        """
        return ops().min(self, axis, keepdims)

    def argmax(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return the index of the largest element along an axis, the first of equal ones.

        Args:
            axis: Axis to search; negative axes count from the end. Defaults to None: the tensor, flattened.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Tensor of indices, int64, without the searched axis.

        Raises:
            InvalidArgument: If the axis is out of range, or there are no elements.

        Examples:
            >>> Tensor([[1, 2], [4, 3]]).argmax(axis=1).tolist()
            [1, 0]

        See also:
            `dmlgpu.ops.argmax`.
        """
        return ops().argmax(self, axis, keepdims)

    def argmin(self, axis: int | None = None, keepdims: bool = False) -> Tensor:
        """Return the index of the smallest element along an axis, the first of equal ones.

        Args:
            axis: Axis to search; negative axes count from the end. Defaults to None: the tensor, flattened.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Tensor of indices, int64, without the searched axis.

        Raises:
            InvalidArgument: If the axis is out of range, or there are no elements.

        Examples:
            >>> Tensor([[1, 2], [4, 3]]).argmin(axis=1).tolist()
            [0, 1]

        See also:
            `dmlgpu.ops.argmin`.
        """
        return ops().argmin(self, axis, keepdims)

    def softmax(self, axis: int | Sequence[int] = -1) -> Tensor:
        """Normalize the elements along `axis` so that the exponentials sum to 1.

        Args:
            axis: Axis or axes to normalize over; negative axes count from the end. Defaults to the last axis.

        Returns:
            Tensor of the same shape and dtype.

        Raises:
            InvalidArgument: If an axis is out of range, or the dtype is not float32 or float16.

        Examples:
            >>> Tensor([0.0, 0.0]).softmax().tolist()
            [0.5, 0.5]

        See also:
            `dmlgpu.ops.softmax`.
        """
        return ops().softmax(self, axis)

    def exp(self) -> Tensor:
        """Return e to the power of each element.

        Returns:
            Tensor of the same shape and floating-point dtype, or float32.

        Examples:
            >>> Tensor([0.0]).exp().tolist()
            [1.0]

        See also:
            `dmlgpu.ops.exp`, `log`.
        """
        return ops().exp(self)

    def log(self) -> Tensor:
        """Return the natural logarithm of each element.

        Returns:
            Tensor of the same shape and floating-point dtype, or float32.

        Examples:
            >>> Tensor([1.0]).log().tolist()
            [0.0]

        See also:
            `dmlgpu.ops.log`, `exp`.
        """
        return ops().log(self)

    def sqrt(self) -> Tensor:
        """Return the square root of each element.

        Returns:
            Tensor of the same shape and floating-point dtype, or float32.

        Examples:
            >>> Tensor([4.0, 9.0]).sqrt().tolist()
            [2.0, 3.0]

        See also:
            `dmlgpu.ops.sqrt`.
        """
        return ops().sqrt(self)

    def var(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: float = 0) -> Tensor:
        """Return the variance of elements along axes.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.
            correction: Subtracted from the element count before dividing by it, also called `ddof`; defaults to 0.

        Returns:
            Tensor without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range.

        Examples:
            >>> Tensor([1.0, 3.0]).var().tolist()
            1.0

        See also:
            `dmlgpu.ops.var`, which lists the dtypes.
        """
        return ops().var(self, axis, keepdims, correction)

    def std(self, axis: int | Sequence[int] | None = None, keepdims: bool = False, correction: float = 0) -> Tensor:
        """Return the standard deviation of elements along axes.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.
            correction: Subtracted from the element count before dividing by it, also called `ddof`; defaults to 0.

        Returns:
            Tensor without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range.

        Examples:
            >>> Tensor([1.0, 3.0]).std().tolist()
            1.0

        See also:
            `dmlgpu.ops.std`, which lists the dtypes.
        """
        return ops().std(self, axis, keepdims, correction)

    def all(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return whether all elements along axes are true or not 0.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Mask without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range.

        Examples:
            >>> Tensor([1, 0]).all().tolist()
            False

        See also:
            `dmlgpu.ops.all`.
        """
        return ops().all(self, axis, keepdims)

    def any(self, axis: int | Sequence[int] | None = None, keepdims: bool = False) -> Tensor:
        """Return whether any element along axes is true or not 0.

        Args:
            axis: Axis or axes to reduce; negative axes count from the end. Defaults to None, all axes.
            keepdims: Whether reduced axes stay, with size 1; defaults to False.

        Returns:
            Mask without the reduced axes.

        Raises:
            InvalidArgument: If an axis is out of range.

        Examples:
            >>> Tensor([1, 0]).any().tolist()
            True

        See also:
            `dmlgpu.ops.any`.
        """
        return ops().any(self, axis, keepdims)

    def sort(self, axis: int = -1, descending: bool = False) -> Tensor:
        """Return the elements along an axis in order; the tensor itself stays as it is.

        Args:
            axis: Axis to sort; negative axes count from the end. Defaults to the last axis.
            descending: Whether the largest element comes first; defaults to False.

        Returns:
            Tensor of the same shape and dtype.

        Raises:
            InvalidArgument: If the axis is out of range.

        Examples:
            >>> Tensor([3, 1, 2]).sort().tolist()
            [1, 2, 3]

        See also:
            `dmlgpu.ops.sort`, `argsort`.
        """
        return ops().sort(self, axis, descending)

    def argsort(self, axis: int = -1, descending: bool = False) -> Tensor:
        """Return the indices that sort the elements along an axis.

        Args:
            axis: Axis to sort; negative axes count from the end. Defaults to the last axis.
            descending: Whether the largest element comes first; defaults to False.

        Returns:
            Tensor of the same shape, int64.

        Raises:
            InvalidArgument: If the axis is out of range.

        Examples:
            >>> Tensor([3, 1, 2]).argsort().tolist()
            [1, 2, 0]

        See also:
            `dmlgpu.ops.argsort`, `sort`.
        """
        return ops().argsort(self, axis, descending)

    def cumsum(self, axis: int | None = None) -> Tensor:
        """Return the running sum along an axis.

        Args:
            axis: Axis to accumulate along; negative axes count from the end. Defaults to None: the tensor, flattened.

        Returns:
            Tensor of the dtype of floating-point elements, else int64 or uint64.

        Raises:
            InvalidArgument: If the axis is out of range.

        Examples:
            >>> Tensor([1, 2, 3]).cumsum().tolist()
            [1, 3, 6]

        See also:
            `dmlgpu.ops.cumsum`.
        """
        return ops().cumsum(self, axis)

    def cumprod(self, axis: int | None = None) -> Tensor:
        """Return the running product along an axis.

        Args:
            axis: Axis to accumulate along; negative axes count from the end. Defaults to None: the tensor, flattened.

        Returns:
            Tensor of the dtype of floating-point elements, else int64 or uint64.

        Raises:
            InvalidArgument: If the axis is out of range.

        Examples:
            >>> Tensor([1, 2, 3]).cumprod().tolist()
            [1, 2, 6]

        See also:
            `dmlgpu.ops.cumprod`.
        """
        return ops().cumprod(self, axis)

    def round(self, decimals: int = 0) -> Tensor:
        """Return each element rounded to a number of decimals, ties to the even last digit.

        Args:
            decimals: Digits after the decimal point; a negative number counts zeros before it. Defaults to 0.

        Returns:
            Tensor of the same shape and dtype.

        Raises:
            InvalidArgument: If `decimals` is not an integer.

        Examples:
            >>> Tensor([0.5, 1.5, 2.25]).round(1).tolist()
            [0.5, 1.5, 2.200000047683716]

        See also:
            `dmlgpu.ops.round`.
        """
        return ops().round(self, decimals)

    def dot(self, other: Any) -> Tensor:
        """Return the sum of products over the last axis of the tensor and the last but one of another.

        Args:
            other: Tensor, array or list.

        Returns:
            Tensor of the common dtype.

        Raises:
            InvalidArgument: If the axes differ in size, or there is no common dtype.

        Examples:
            >>> Tensor([1, 2]).dot([3, 4]).tolist()
            11

        See also:
            `a @ b`, `dmlgpu.ops.dot`.
        """
        return ops().dot(self, other)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """Return the sums of the diagonals of matrices.

        Args:
            offset: Diagonal: 0, the default, is the main one, positive ones lie above it.
            axis1: Axis of the rows of the matrices; defaults to 0.
            axis2: Axis of their columns; defaults to 1.

        Returns:
            Tensor without the two axes.

        Raises:
            InvalidArgument: If there are fewer than 2 axes, or one is out of range or named twice.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).trace().tolist()
            5

        See also:
            `diagonal`, `dmlgpu.ops.trace`.
        """
        return ops().trace(self, offset, axis1, axis2)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
        """Return a view of the diagonals of matrices, as the last axis.

        Args:
            offset: Diagonal: 0, the default, is the main one, positive ones lie above it.
            axis1: Axis of the rows of the matrices; defaults to 0.
            axis2: Axis of their columns; defaults to 1.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If there are fewer than 2 axes, or one is out of range or named twice.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
            [1, 4]

        See also:
            `trace`, `dmlgpu.ops.diagonal`.
        """
        return ops().diagonal(self, offset, axis1, axis2)

    def repeat(self, repeats: Any, axis: int | None = None) -> Tensor:
        """Return each element, or slice along an axis, several times in a row.

        Args:
            repeats: Number of repetitions, or integers, one per slice.
            axis: Axis along which to repeat; defaults to None: the tensor, flattened.

        Returns:
            Tensor of the same dtype.

        Raises:
            InvalidArgument: If a number is negative, there are other ones than slices, or the axis is out of range.

        Examples:
            >>> Tensor([1, 2]).repeat(2).tolist()
            [1, 1, 2, 2]

        See also:
            `dmlgpu.ops.repeat`, `dmlgpu.ops.tile`.
        """
        return ops().repeat(self, repeats, axis)

    def take(self, indices: Any, axis: int | None = None) -> Tensor:
        """Return the slices along an axis that indices select.

        Args:
            indices: Tensor, array or list of integers; negative ones count from the end.
            axis: Axis to index; defaults to None: the tensor, flattened.

        Returns:
            Tensor of the same dtype, in which the axes of `indices` replace `axis`.

        Raises:
            InvalidArgument: If `indices` are not integers, or the axis is out of range.

        Examples:
            >>> Tensor([5, 6, 7]).take([2, 0]).tolist()
            [7, 5]

        See also:
            `dmlgpu.ops.take`, `x[indices]`.
        """
        return ops().take(self, indices, axis)

    def ravel(self) -> Tensor:
        """Return the elements with one axis, in row-major order: `reshape(-1)`.

        Returns:
            View of the same memory, or a copy if strides do not allow one.

        Raises:
            InvalidArgument: If the tensor was released.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).ravel().tolist()
            [1, 2, 3, 4]

        See also:
            `flatten`, `reshape`.
        """
        return ops().reshape(self, -1)

    def swapaxes(self, axis1: int, axis2: int) -> Tensor:
        """Return a view with two axes exchanged.

        Args:
            axis1: One axis; negative axes count from the end.
            axis2: The other axis.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If an axis is out of range.

        Examples:
            >>> Tensor([[1, 2, 3]]).swapaxes(0, 1).shape
            (3, 1)

        See also:
            `transpose`, `dmlgpu.ops.swapaxes`.
        """
        return ops().swapaxes(self, axis1, axis2)

    def nonzero(self) -> tuple[Tensor, ...]:
        """Return the coordinates of the elements that are true or not 0; waits for the elements.

        Returns:
            A tensor of int64 per axis.

        Raises:
            InvalidArgument: If there is no axis.
            InvalidState: If a function is being traced.

        Examples:
            >>> [places.tolist() for places in Tensor([0, 5, 7]).nonzero()]
            [[1, 2]]

        See also:
            `dmlgpu.ops.nonzero`.
        """
        return ops().nonzero(self)

    def __round__(self, ndigits: int | None = None) -> Tensor:
        return self.round(ndigits or 0)

    def clip(self, min: Operand | None = None, max: Operand | None = None) -> Tensor:
        """Return each element limited to the range from `min` to `max`.

        Args:
            min: Lower bound: number, Tensor or array that broadcasts; defaults to None, no bound.
            max: Upper bound, likewise.

        Returns:
            Tensor of the broadcast shape and the common dtype of elements and bounds.

        Raises:
            InvalidArgument: If there is no common dtype, it cannot hold a bound, or the shapes do not broadcast.

        Examples:
            >>> Tensor([-1.5, 0.5, 7.0]).clip(0, 1).tolist()
            [0.0, 0.5, 1.0]

        See also:
            `dmlgpu.ops.clip`.
        """
        return ops().clip(self, min, max)

    def view(self, *sizes: Any) -> Tensor:
        """Return a view in another shape, as PyTorch's `view`, which never copies.

        Args:
            sizes: Size of each axis, as arguments or in a sequence; one may be -1, which is inferred.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If the element count differs, or strides do not allow a view.

        Examples:
            >>> Tensor([1, 2, 3, 4]).view(2, -1).tolist()
            [[1, 2], [3, 4]]

        See also:
            `reshape`, which copies if needed.
        """
        return ops().view(self, sizes[0] if len(sizes) == 1 else sizes)

    def flatten(self, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """Return the elements with a range of axes as one axis, in row-major order.

        Args:
            start_dim: First of the axes; negative axes count from the end. Defaults to 0.
            end_dim: Last of the axes; defaults to the last axis.

        Returns:
            View of the same memory, or a copy if strides do not allow one.

        Raises:
            InvalidArgument: If an axis is out of range, or `start_dim` comes after `end_dim`.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).flatten().tolist()
            [1, 2, 3, 4]
            >>> Tensor([[[1, 2], [3, 4]]]).flatten(1).shape
            (1, 4)

        See also:
            `reshape`, `view`.
        """
        return ops().flatten(self, start_dim, end_dim)


for _name, _method in list(vars(Methods).items()):
    if inspect.isfunction(_method):
        _method.__qualname__ = f"Tensor.{_name}"  # as Python's messages about arguments name it
        if not ALIASED.isdisjoint(_method.__code__.co_varnames):
            setattr(Methods, _name, takes_aliases(_method))
