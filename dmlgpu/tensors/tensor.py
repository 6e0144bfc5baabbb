"""Tensors: arrays on a device, and values of graphs."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from dmlgpu.catalog import descs
from dmlgpu.catalog.enums import DataType
from dmlgpu.catalog.operator_desc import OperatorDesc
from dmlgpu.catalog.tensor_desc import MAX_DIMENSIONS
from dmlgpu.common.errors import InvalidArgument, shown
from dmlgpu.common.suggestions import suggestion
from dmlgpu.runtime.device import Device, as_device
from dmlgpu.tensors import indexing, layout, numpy_functions
from dmlgpu.tensors.arithmetic import Arithmetic, matrix_product
from dmlgpu.tensors.execution import call_op
from dmlgpu.tensors.memory import NodeMemory, decides
from dmlgpu.tensors.methods import Methods
from dmlgpu.tensors.session import session_of
from dmlgpu.tensors.strided import TensorBase
from dmlgpu.tensors.types import TypeLike, as_array, as_data_type, bytes_of, is_boolean_type, promoted


class Tensor(TensorBase, Arithmetic, Methods):
    """An array on a device, or a value of a graph.

    Computed memory never changes: views share it, and assignment, `x[0] = 1`, gives the assigned tensor new memory.

    `T`, `transpose`, `broadcast_to`, `squeeze`, `expand_dims`, `reshape` if strides allow, and indexing with integers
    and slices return views; `is_view` tells. Slices with a negative step, and indices that are arrays of integers or
    masks, copy. DirectML binds memory at multiples of 16 bytes, so a view that begins elsewhere is copied before an
    operator reads it.

    Python's operators follow NumPy: shapes broadcast, dtypes are promoted with float32 instead of float64, and an array
    is copied to the tensor's device. A Python number takes the tensor's dtype, but a float makes float32 of integers
    and masks, and an int makes int64 of masks. `/` of integers is float32; `//` and `%` round towards minus infinity;
    comparisons return masks, of which `+`, `*` and `@` are logical.

    Args:
        values: Numbers in nested lists, a NumPy array, or any object with `__array__`. Floats in lists become float32,
            integers int64.
        dtype: Dtype of the elements: a `DataType`, a NumPy dtype or its name, `"bool"` for masks; defaults to None, the
            dtype of `values`.
        device: Device or adapter name; defaults to None, `dmlgpu.default_device()`.

    Raises:
        InvalidArgument: If `values` are not real numbers, the dtype cannot hold them, or there are more than 8 axes.
        OutOfMemory: If the device has no memory for it.

    Examples:
        >>> x = Tensor([[1, 2], [3, 4]], "float32")
        >>> (x.T * 2 + 1).numpy()
        array([[3., 7.],
               [5., 9.]], dtype=float32)
        >>> x[0, 1:].tolist()
        [2.0]
        >>> x[x > 2].tolist()
        [3.0, 4.0]

    See also:
        `dmlgpu.ops` for functions of tensors, `dmlgpu.array` for the array API standard, `dmlgpu.compile` to fuse them.
    """

    __slots__ = ()

    def __init__(self, values: Any, dtype: TypeLike | None = None, *, device: Device | str | None = None):
        caller = "Tensor"
        is_boolean = dtype is not None and is_boolean_type(dtype)
        requested = None if dtype is None or is_boolean else as_data_type(caller, "dtype", dtype)
        array, data_type = as_array(caller, "values", values, requested)
        if is_boolean or array.dtype == bool:
            array, data_type, is_boolean = np.asarray(array != 0).astype(np.uint8), DataType.UINT8, True
        if array.ndim > MAX_DIMENSIONS:
            raise InvalidArgument(f"{caller}: values must have at most {MAX_DIMENSIONS} dimensions, got {array.ndim}")
        self._upload(array, data_type, as_device(caller, device), is_boolean)

    def _upload(self, array: NDArray[Any], data_type: DataType, device: Device, truth: bool = False) -> None:
        """Take memory of a device, and fill it with elements of the data type's own NumPy type."""
        raw = bytes_of(array, data_type)
        buffer = session_of(device).pool.take(device, raw.size, "Tensor")
        if array.size:
            buffer.write(raw)
        self._set(buffer, data_type, array.shape, boolean=truth)

    @classmethod
    def _uploaded(cls, array: NDArray[Any], device: Device) -> Self:
        """Return an array of a data type's own NumPy type, of at most 8 dimensions, as a tensor on a device."""
        tensor = cls.__new__(cls)
        tensor._upload(array, DataType.from_numpy(array.dtype), device)
        return tensor

    @classmethod
    def from_numpy(cls, array: NDArray[Any], *, device: Device | str | None = None) -> Tensor:
        """Copy a NumPy array to a device.

        Args:
            array: NumPy array of real numbers, rank 0 to 8.
            device: Device or adapter name; defaults to None, `dmlgpu.default_device()`.

        Returns:
            Tensor of the shape and dtype of `array`.

        Raises:
            InvalidArgument: If `array` is not a NumPy array of real numbers, or has more than 8 axes.
            OutOfMemory: If the device has no memory for it.

        Examples:
            >>> Tensor.from_numpy(np.array([1, 2], np.int8)).type_name
            'INT8'

        See also:
            `Tensor`, which takes lists as well; `numpy`.
        """
        if not isinstance(array, np.ndarray):
            raise InvalidArgument(f"Tensor.from_numpy: array must be a NumPy array, got {type(array).__name__}")
        return cls(array, device=device)

    def to(self, device: Device | str | None) -> Tensor:
        """Return the tensor on a device: itself if it is there, else a copy by way of the host.

        Args:
            device: Device or adapter name; None means `dmlgpu.default_device()`.

        Returns:
            Tensor of the same shape and dtype.

        Raises:
            InvalidArgument: If `device` is neither a device nor a name.
            AdapterNotFound: If there is no adapter of that name.
            OutOfMemory: If the device has no memory for it.

        Examples:
            >>> x = Tensor([1.0], device="numpy")
            >>> x.to("numpy") is x
            True

        See also:
            `to_device`, the array API's name.
        """
        target = as_device("Tensor.to", device)
        return self if target is self.device else Tensor(self.numpy(), self._type, device=target)

    def to_device(self, device: Device | str | None, /, *, stream: None = None) -> Tensor:
        """Return the tensor on a device: `to` under the array API's name.

        Args:
            device: Device or adapter name; None means `dmlgpu.default_device()`.
            stream: None; devices have no streams.

        Returns:
            Tensor of the same shape and dtype.

        Raises:
            InvalidArgument: If `device` is neither a device nor a name, or a stream is passed.
            AdapterNotFound: If there is no adapter of that name.
            OutOfMemory: If the device has no memory for it.

        Examples:
            >>> x = Tensor([1.0], device="numpy")
            >>> x.to_device(x.device) is x
            True

        See also:
            `to`.
        """
        if stream is not None:
            raise InvalidArgument(f"Tensor.to_device: stream must be None, got {shown(stream)}")
        return self.to(device)

    if not TYPE_CHECKING:  # type checkers report unknown names

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, which names the function of ``dmlgpu.ops`` if there is one of that name."""
            advice = suggestion(name, "dmlgpu.Tensor", with_similar=False)  # Python suggests similar attributes itself
            message = f"{type(self).__name__!r} object has no attribute {name!r}{advice}"
            raise AttributeError(message, name=name, obj=self)

    def __array_namespace__(self, *, api_version: str | None = None) -> ModuleType:
        namespace = importlib.import_module("dmlgpu.array")
        if api_version is not None and api_version not in namespace.VERSIONS:
            known = ", ".join(namespace.VERSIONS)
            raise InvalidArgument(
                f"Tensor.__array_namespace__: api_version must be one of {known}, got {shown(api_version)}"
            )
        return namespace

    @property
    def _type(self) -> Any:
        """Element type, as ``Tensor`` takes it."""
        return bool if self.is_boolean else self.data_type

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (self.numpy(), self._type)

    def __copy__(self) -> Tensor:
        return self._same()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return self._same()

    def __len__(self) -> int:
        if not self.sizes:
            raise TypeError("a Tensor without dimensions has no length")
        return self.sizes[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[index] for index in range(len(self)))

    def __contains__(self, value: Any) -> bool:
        is_equal = self == value
        return isinstance(is_equal, Tensor) and bool(is_equal.any())

    @decides
    def reshape(self, *sizes: Any, copy: bool | None = None) -> Tensor:
        """Return the elements, in row-major order, in another shape.

        Args:
            sizes: Size of each axis, as arguments or in a sequence; one may be -1, which is inferred.
            copy: None, the default, copies only if strides do not allow a view; True always copies, False never.

        Returns:
            View of the same memory, or a copy.

        Raises:
            InvalidArgument: If the element count differs, or `copy` is False and a view is not possible.

        Examples:
            >>> Tensor([1, 2, 3, 4]).reshape(2, -1).tolist()
            [[1, 2], [3, 4]]

        See also:
            `flatten`, `reinterpret`, `dmlgpu.ops.reshape`.
        """
        values = sizes[0] if len(sizes) == 1 else sizes
        shape = layout.resolved_sizes("Tensor.reshape", values, self.size)
        strides = None if copy else layout.reshaped_strides(self.sizes, self.strides, shape)
        if strides is not None:
            return self._view(shape, strides)
        if copy is False:
            raise InvalidArgument(
                f"Tensor.reshape: copy must not be False: {list(self.sizes)} with strides {list(self.strides)} cannot "
                f"be viewed as {list(shape)}"
            )
        return self.copy()._renamed(shape)

    @decides
    def __getitem__(self, index: Any) -> Tensor:
        caller = "Tensor[...]"
        if isinstance(index, tuple):
            if any(map(indexing.is_array, index)):
                return indexing.select(self, index)
        elif isinstance(index, Tensor | np.ndarray | list | bool | np.bool_):
            return self._gathered(index)
        selection = layout.select(caller, self.sizes, self.strides, index if isinstance(index, tuple) else (index,))
        if len(selection.sizes) > MAX_DIMENSIONS:
            raise InvalidArgument(f"{caller}: indices must leave at most 8 dimensions, got {len(selection.sizes)}")
        view = self._view(selection.sizes, selection.strides, selection.offset)
        return view.flip(selection.reversed_axes) if selection.reversed_axes else view

    def __setitem__(self, index: Any, value: Any) -> None:
        """Replace elements: the tensor gets new memory, and tensors that share its old memory keep the old elements."""
        if self.is_view:
            raise InvalidArgument(
                "Tensor[...] = value: a view must not be assigned to, since what it views would stay as it is; "
                "x.copy() makes a tensor that can be"
            )
        self._check_usable("Tensor[...] = value")
        result = indexing.assigned(self, index, value)
        self._set(result.buffer, self.data_type, self.sizes, boolean=self.is_boolean)

    def _gathered(self, index: Any) -> Tensor:
        """Return the slices along the first axis that integers or a mask select."""
        indices = index if isinstance(index, Tensor) else np.asarray(index)
        if indices.dtype == bool:
            return indexing.masked(self, indices)
        if not self.sizes or 0 in self.sizes or 0 in indices.shape or not isinstance(indices, Tensor):
            return indexing.select(self, (indices,))
        if indices.data_type.is_float:
            raise InvalidArgument(
                f"Tensor[...]: an index must be of integers, got {indices.type_name}; astype('int64') converts it"
            )
        return self._taken(
            indices if indices.data_type.bits >= 32 else indices.astype(DataType.INT32), 0, "Tensor[...]"
        )

    def _taken(self, indices: Tensor, axis: int, caller: str) -> Tensor:
        """Return the slices along an axis that indices select, for ``caller``; see ``take``."""
        return take(self, indices, axis, caller)

    def _nothing(self, sizes: tuple[int, ...]) -> Tensor:
        """Return an empty tensor of the same type on the same device."""
        return Tensor(np.empty(sizes, self.dtype), self._type, device=self.device)

    # ---- copies -----------------------------------------------------------------------------------------------------

    @decides
    def copy(self) -> Tensor:
        """Return a packed copy on the same device, which is not a view.

        Returns:
            Tensor of the same shape and dtype.

        Raises:
            OutOfMemory: If the device has no memory for it.

        Examples:
            >>> Tensor([[1, 2], [3, 4]]).T.copy().is_view
            False

        See also:
            `to`, which copies to another device.

        Computed by ELEMENT_WISE_IDENTITY (`ns-directml-dml_element_wise_identity_operator_desc`).
        """
        return self._operator("Tensor.copy", descs.ElementWiseIdentity, input_tensor=self)

    def astype(self, dtype: TypeLike) -> Tensor:
        """Return the elements converted to another dtype.

        Floats are rounded towards zero, and values out of range saturate.

        Args:
            dtype: A `DataType`, a NumPy dtype or its name; `"bool"` is whether an element is not 0.

        Returns:
            Tensor of the same shape; the tensor itself if it has the dtype.

        Raises:
            InvalidArgument: If `dtype` is not a dtype.

        Examples:
            >>> Tensor([1.7, -1.7, 300.0]).astype("uint8").tolist()
            [1, 0, 255]

        See also:
            `float`, `half`, `reinterpret`, `dmlgpu.ops.astype`.

        Computed by CAST (`ns-directml-dml_cast_operator_desc`).
        """
        if is_boolean_type(dtype):
            return self if self.is_boolean else self != 0
        data_type = as_data_type("Tensor.astype", "dtype", dtype)
        if data_type is self.data_type:
            return self._same(boolean=False) if self.is_boolean else self
        return call_op(descs.Cast, {"input_tensor": self}, types={"output_tensor": data_type}, caller="Tensor.astype")[
            0
        ]

    @decides
    def flip(self, axis: Any = None) -> Tensor:
        """Return a copy with the elements in reverse order along axes.

        Args:
            axis: Axis or axes to reverse; defaults to None, all.

        Returns:
            Tensor of the same shape and dtype.

        Raises:
            InvalidArgument: If an axis is out of range.

        Examples:
            >>> Tensor([1, 2, 3]).flip().tolist()
            [3, 2, 1]

        See also:
            `x[::-1]`, `dmlgpu.ops.roll`.

        Computed by SLICE1 (`ns-directml-dml_slice1_operator_desc`).
        """
        axes = range(self.ndim) if axis is None else layout.checked_axes("Tensor.flip", "axis", axis, self.ndim)
        if not self.size > 1:
            return self._same()
        strides = [-1 if i in axes else 1 for i in range(self.ndim)]
        values = {
            "input_tensor": self,
            "input_window_offsets": (0,) * self.ndim,
            "input_window_sizes": self.sizes,
            "input_window_strides": tuple(strides),
        }
        return self._operator("Tensor.flip", descs.Slice1, **values)

    @decides
    def __matmul__(self, other: Any) -> Tensor:
        if self._is_strict and isinstance(other, Tensor):
            return _gemm("a @ b", self, other)
        return matmul(self, self._beside(other)) if isinstance(other, Tensor | np.ndarray) else NotImplemented

    @decides
    def __rmatmul__(self, other: Any) -> Tensor:
        return matmul(self._beside(other), self) if isinstance(other, Tensor | np.ndarray) else NotImplemented

    def permute(self, *axes: Any) -> Tensor:
        """Return a view with the axes in another order: `transpose` under PyTorch's name.

        Args:
            axes: Every axis once, in the order of the result, as arguments or in a sequence.

        Returns:
            View of the same memory.

        Raises:
            InvalidArgument: If `axes` does not name each axis once.

        Examples:
            >>> Tensor([[[1, 2, 3]]]).permute(2, 0, 1).shape
            (3, 1, 1)

        See also:
            `transpose`.
        """
        return self.transpose(*axes)

    def cpu(self) -> Tensor:
        """Return the tensor on the NumPy reference, as PyTorch's `cpu`: itself if it is there, else a copy.

        Returns:
            Tensor of the same shape and dtype on the adapter `"numpy"`.

        Examples:
            >>> Tensor([1.0]).cpu().device.name
            'numpy'

        See also:
            `numpy`, which returns an array; `to`.
        """
        return self.to("numpy")

    def float(self) -> Tensor:
        """Return the elements converted to float32, as PyTorch's `float`.

        Returns:
            Tensor of the same shape; the tensor itself if it is float32.

        Examples:
            >>> Tensor([1, 2]).float().type_name
            'FLOAT32'

        See also:
            `astype`, `half`.
        """
        return self.astype(DataType.FLOAT32)

    def half(self) -> Tensor:
        """Return the elements converted to float16, as PyTorch's `half`.

        Returns:
            Tensor of the same shape; the tensor itself if it is float16.

        Examples:
            >>> Tensor([1, 2]).half().type_name
            'FLOAT16'

        See also:
            `astype`, `float`.
        """
        return self.astype(DataType.FLOAT16)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return numpy_functions.apply_ufunc(ufunc, method, inputs, options)

    def __array_function__(self, function: Any, types: Any, args: Any, options: Mapping[str, Any]) -> Any:
        return numpy_functions.apply_function(function, types, args, options)

    def _chosen(self, condition: Tensor, other: Any) -> Tensor:
        """Return the elements if a condition holds, else those of ``other``, a tensor or a number.

        Raises:
            InvalidArgument: sizes that do not broadcast, or types that differ.
        """
        values = {"condition_tensor": condition, "a_tensor": self, "b_tensor": other}
        return self._operator("Tensor[...]", descs.ElementWiseIf, **values)

    def _operator(self, caller: str, kind: type[OperatorDesc], **values: Any) -> Tensor:
        return call_op(kind, values, caller=caller)[0]

    def _beside(self, other: Any, dtype: TypeLike | None = None) -> Tensor:
        """Return the other operand: a tensor unchanged, other values on this tensor's device or in its graph."""
        if isinstance(other, Tensor):
            return other
        if isinstance(self.buffer, NodeMemory) and not self.buffer.graph.is_traced:
            return self.buffer.graph.constant(other, dtype)
        return Tensor(other, dtype, device=self.device)


TensorBase.result_class = Tensor


def take(x: Tensor, indices: Tensor, axis: int, caller: str) -> Tensor:
    """Return the slices along an axis that indices select; the axes of `indices` replace it.

    Raises:
        InvalidArgument: If there would be more than 8 axes, or the axis has no elements.
    """
    sizes = x.sizes[:axis] + indices.sizes + x.sizes[axis + 1 :]
    if 0 in sizes and len(sizes) <= MAX_DIMENSIONS:
        return x._nothing(sizes)
    if 0 in x.sizes:
        raise InvalidArgument(f"{caller}: indices must name elements, got {list(indices.sizes)} into an axis of size 0")
    rank = max(x.ndim, indices.ndim, len(sizes), 1)
    if rank > MAX_DIMENSIONS:
        raise InvalidArgument(f"{caller}: indices must leave at most {MAX_DIMENSIONS} dimensions, got {rank}")
    result = x._operator(
        caller,
        descs.Gather,
        input_tensor=_leading_ones(x, rank),
        indices_tensor=_leading_ones(indices, rank),
        axis=axis + rank - x.ndim,
        index_dimensions=max(indices.ndim, 1),
    )
    return result._renamed(sizes)


def matmul(a: Tensor, b: Tensor, caller: str = "a @ b") -> Tensor:
    """Return the product of matrices, or of stacks of matrices, which broadcast.

    A vector is a row on the left and a column on the right; the result lacks its axis.

    Raises:
        InvalidArgument: If an operand is a scalar, there is no common dtype, or shapes do not fit.
    """
    if not (a.sizes and b.sizes):
        raise InvalidArgument(
            f"{caller}: a and b must have at least one dimension, got {list(a.sizes)}, {list(b.sizes)}"
        )
    a, b = promoted(caller, {"a": a, "b": b})
    if a.is_boolean:  # whether a sum of products is not 0
        return matmul(a.astype(DataType.FLOAT32), b.astype(DataType.FLOAT32), caller) != 0
    rows, columns = a.sizes[-2:-1], b.sizes[-1:] if b.ndim > 1 else ()
    left, right = a if a.ndim > 1 else a.expand_dims(0), b if b.ndim > 1 else b.expand_dims(1)
    if left.sizes[-1] != right.sizes[-2]:
        raise InvalidArgument(
            f"{caller}: the last size of a must equal the first of b's matrices, got {list(a.sizes)}, {list(b.sizes)}"
        )
    stack = layout.broadcast_sizes(caller, [("a's stack", left.sizes[:-2]), ("b's stack", right.sizes[:-2])])
    left, right = (factor.broadcast_to((*stack, *factor.sizes[-2:])) for factor in (left, right))
    sizes = (*stack, *rows, *columns)
    if not (left.size and right.size):
        return Tensor(np.zeros(sizes, a.dtype), a._type, device=a.device)
    if not a.data_type.is_float:
        return matrix_product(caller, left, right)._renamed(sizes)
    if len(stack) > 2:
        left, right = (factor.reshape(-1, *factor.sizes[-2:]) for factor in (left, right))
    return _gemm(caller, left, right)._renamed(sizes)


def _gemm(caller: str, a: Tensor, b: Tensor) -> Tensor:
    return a._operator(caller, descs.Gemm, a_tensor=a, b_tensor=b, trans_a=0, trans_b=0, alpha=1.0, beta=0.0)


def _leading_ones(x: Tensor, rank: int) -> Tensor:
    return x.expand_dims(tuple(range(rank - x.ndim))) if x.ndim < rank else x
